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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_uniclaw.errors import SettingsError

BASE_IMAGE = "debian:bookworm-slim"
REPOSITORY = "uniclaw"
IMAGE_LABEL = "uniclaw.image"
DESKTOP = "desktop"
"""The runtime with a virtual screen and a browser."""
ON_DESKTOP = "-desktop"
"""How the names of agents' images end that have the desktop as parent."""
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class ImageSpec:
    """One image of ours.

    ``folder`` is a folder of ``docker/``, taken whole. ``parent`` is the name of another spec or, for the first one,
    an image reference. ``args`` are build arguments that are part of the tag. ``extra`` adds files to the context:
    pairs of a name there and a source, ``docker:<path under docker/>`` or ``sandbox:<file of this package>``.
    ``on_demand`` images are built when they are named, never as part of all.
    """

    name: str
    folder: str
    parent: str
    args: tuple[tuple[str, str], ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    on_demand: bool = False


@dataclass(frozen=True)
class AgentImages:
    """The images of one agent, one for each release.

    ``releases`` begins with the default. ``lock`` is the name that the release's pins have in the build context; they
    are ``docker/locks/<agent>-<release>`` with the same suffix.
    """

    lock: str
    releases: tuple[str, ...]


AGENTS: Mapping[str, AgentImages] = {
    "nanobot": AgentImages("requirements.txt", ("0.1.5.post3", "0.3.5")),
    "codex": AgentImages("package-lock.json", ("0.171.0", "0.120.0")),
    "openclaw": AgentImages("package-lock.json", ("2026.3.11", "2026.9.6")),
    "qwen-code": AgentImages("package-lock.json", ("0.24.4",)),
    "opencode": AgentImages("package-lock.json", ("1.18.33",)),
}
"""Agents with images of their own; ``docker/<agent>/`` has the Dockerfile."""


def _agent_specs(agent: str, images: AgentImages) -> Iterator[ImageSpec]:
    for release in images.releases:
        name = f"{agent}-{release}"
        lock = (images.lock, f"docker:locks/{name}{Path(images.lock).suffix}")
        yield ImageSpec(name=name, folder=agent, parent="runtime", extra=(lock,))
        yield ImageSpec(name=name + ON_DESKTOP, folder=agent, parent=DESKTOP, extra=(lock,), on_demand=True)


_SPECS = (
    ImageSpec(
        name="runtime",
        folder="runtime",
        parent=BASE_IMAGE,
        extra=(("guardian.py", "sandbox:guardian.py"), ("sweep.py", "sandbox:sweep.py")),
    ),
    ImageSpec(name="grader", folder="grader", parent="runtime"),
    ImageSpec(name=DESKTOP, folder="desktop", parent="runtime"),
    *(spec for agent, images in AGENTS.items() for spec in _agent_specs(agent, images)),
)

IMAGES: Mapping[str, ImageSpec] = {spec.name: spec for spec in _SPECS}
"""Every image of ours by name, parents before children."""

DEMO_IMAGES = ("runtime", "grader", f"nanobot-{AGENTS['nanobot'].releases[0]}")
"""What ``make demo`` needs."""

EDICT_IMAGE = "openclaw-2026.3.11"
"""EDICT's own files are put into a sandbox by its adapter; no image holds them."""

_AGENT_IMAGES = {
    "oracle": {"": "runtime"},
    "nop": {"": "runtime"},
    "openclaw_edict": {"": EDICT_IMAGE, "14a2075": EDICT_IMAGE},
} | {
    agent: {release: f"{agent}-{release}" for release in images.releases} | {"": f"{agent}-{images.releases[0]}"}
    for agent, images in AGENTS.items()
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


def on_desktop(image: str) -> str:
    """Return the image that has what ``image`` has and the desktop; an image that is none of ours must have it."""
    if image == "runtime":
        return DESKTOP
    return image + ON_DESKTOP if image + ON_DESKTOP in IMAGES else image


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
