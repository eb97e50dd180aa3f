"""Which images exist, what goes into them and what their tags are: pure values, no engine.

A tag is content-addressed, ``uniclaw/<name>:<12 hex>``: the hash covers every file of the build context, the tag of
the parent and the build arguments that change the result. An edited Dockerfile gives a new tag and so a new build;
nothing else does. Certificate bundles, mirrors and proxies of a machine are not part of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_uniclaw.errors import SettingsError

BASE_IMAGE = "debian:bookworm-slim"
REPOSITORY = "uniclaw"
IMAGE_LABEL = "uniclaw.image"
DEFAULT_NANOBOT = "0.1.5.post3"
NANOBOT_VERSIONS = (DEFAULT_NANOBOT, "0.3.5")
DEFAULT_CODEX = "0.171.0"
CODEX_VERSIONS = (DEFAULT_CODEX, "0.120.0")

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class ImageSpec:
    """One image of ours.

    ``folder`` is a folder of ``docker/``, taken whole. ``parent`` is the name of another spec or, for the first one,
    an image reference. ``args`` are build arguments that are part of the tag. ``extra`` adds files to the context:
    pairs of a name there and a source, ``docker:<path under docker/>`` or ``sandbox:<file of this package>``.
    """

    name: str
    folder: str
    parent: str
    args: tuple[tuple[str, str], ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


def _nanobot(version: str) -> ImageSpec:
    lock = ("requirements.txt", f"docker:locks/nanobot-{version}.txt")
    return ImageSpec(name=f"nanobot-{version}", folder="nanobot", parent="runtime", extra=(lock,))


def _codex(version: str) -> ImageSpec:
    lock = ("package-lock.json", f"docker:locks/codex-{version}.json")
    return ImageSpec(name=f"codex-{version}", folder="codex", parent="runtime", extra=(lock,))


_SPECS = (
    ImageSpec(
        name="runtime",
        folder="runtime",
        parent=BASE_IMAGE,
        extra=(("guardian.py", "sandbox:guardian.py"), ("sweep.py", "sandbox:sweep.py")),
    ),
    ImageSpec(name="grader", folder="grader", parent="runtime"),
    *(_nanobot(version) for version in NANOBOT_VERSIONS),
    *(_codex(version) for version in CODEX_VERSIONS),
)

IMAGES: Mapping[str, ImageSpec] = {spec.name: spec for spec in _SPECS}
"""Every image of ours by name, parents before children."""

DEMO_IMAGES = ("runtime", "grader", f"nanobot-{DEFAULT_NANOBOT}")
"""What ``make demo`` needs."""

_AGENT_IMAGES = {
    "oracle": {"": "runtime"},
    "nop": {"": "runtime"},
    "nanobot": {version: f"nanobot-{version}" for version in NANOBOT_VERSIONS} | {"": f"nanobot-{DEFAULT_NANOBOT}"},
    "codex": {version: f"codex-{version}" for version in CODEX_VERSIONS} | {"": f"codex-{DEFAULT_CODEX}"},
}


def spec_of(name: str) -> ImageSpec:
    """Return the spec of one image; raise SettingsError with the known names for any other."""
    if name not in IMAGES:
        raise SettingsError(f"no image is called {name!r}; the images are: {', '.join(IMAGES)}")
    return IMAGES[name]


def agent_image(agent: str, version: str | None = None) -> str:
    """Return the name of the image an agent of ours runs in; None or "" is its default version.

    Raise SettingsError for an agent or a version without an image here.
    """
    versions = _AGENT_IMAGES.get(agent)
    if versions is None:
        raise SettingsError(f"no image is known for the agent {agent!r}; known agents: {', '.join(_AGENT_IMAGES)}")
    name = versions.get(version or "")
    if name is None:
        known = ", ".join(key for key in versions if key) or "none: leave the version out"
        raise SettingsError(f"no image is known for {agent} {version}; versions with an image: {known}")
    return name


def agent_image_tag(agent: str, version: str | None = None) -> str:
    """Return the tag of the image an agent of ours runs in (see :func:`agent_image`)."""
    return image_tag(agent_image(agent, version))


def docker_root() -> Path:
    """Return the folder of the Dockerfiles: ``docker/`` of the checkout, or its copy in the installed package."""
    for folder in (_PACKAGE.parent / "docker", _PACKAGE / "_docker"):
        if (folder / "runtime" / "Dockerfile").is_file():
            return folder
    raise SettingsError(f"no Dockerfiles beside {_PACKAGE}: neither a source checkout nor a complete installation")


def _source(reference: str, root: Path) -> Path:
    kind, _, path = reference.partition(":")
    return root / path if kind == "docker" else _PACKAGE / "sandbox" / path


def context_files(spec: ImageSpec, root: Path | None = None) -> dict[str, bytes]:
    """Return the build context of one image as name -> content, sorted; caches and dot files are left out."""
    root = root or docker_root()
    folder = root / spec.folder
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(folder).parts)
    }
    files.update({name: _source(reference, root).read_bytes() for name, reference in spec.extra})
    return dict(sorted(files.items()))


def compute_tag(spec: ImageSpec, files: Mapping[str, bytes], parent: str) -> str:
    """Return ``uniclaw/<name>:<12 hex>`` of a context, the parent's tag and the spec's build arguments."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    identity = json.dumps([spec.name, digests, parent, sorted(spec.args)], sort_keys=True)
    return f"{REPOSITORY}/{spec.name}:{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


@cache
def image_tag(name: str) -> str:
    """Return the tag that an image of ours has, built or not; raise SettingsError for an unknown name."""
    spec = spec_of(name)
    return compute_tag(spec, context_files(spec), parent_tag(spec))


def parent_tag(spec: ImageSpec) -> str:
    """Return what the image is built from: the tag of another image of ours or an outside reference."""
    return image_tag(spec.parent) if spec.parent in IMAGES else spec.parent


def context_tar(files: Mapping[str, bytes]) -> bytes:
    """Return a build context as a tar whose bytes depend on names and contents alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def with_parents(names: Iterable[str]) -> list[str]:
    """Return the images and all their ancestors, parents first."""
    wanted: set[str] = set()
    for name in names:
        spec = spec_of(name)
        while spec.name not in wanted:
            wanted.add(spec.name)
            spec = IMAGES.get(spec.parent, spec)
    return [name for name in IMAGES if name in wanted]
