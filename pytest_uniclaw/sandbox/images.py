"""The engine side of our images: what is there, build what is missing, list and prune.

Values (names, contexts, tags) are in :mod:`pytest_uniclaw.sandbox.image_spec`; the ones others need are re-exported
here. ``python -m pytest_uniclaw.sandbox.images --help`` is the command line that ``scripts/setup`` calls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.base_image import MIRROR, base_image
from pytest_uniclaw.sandbox.engine import calls, failures
from pytest_uniclaw.sandbox.image_spec import (
    BASE_IMAGE,
    DEMO_IMAGES,
    IMAGE_LABEL,
    IMAGES,
    ImageSpec,
    agent_image,
    context_files,
    context_tar,
    image_tag,
    parent_tag,
    with_parents,
)

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    "BASE_IMAGE",
    "DEMO_IMAGES",
    "IMAGES",
    "BuiltImage",
    "ImageSpec",
    "agent_image",
    "base_image",
    "build_images",
    "find_ca_bundle",
    "image_tag",
    "list_images",
    "missing_images",
    "prune_images",
]

BUILD_SECONDS = 3600
LAST_LINES = 40
STEP_WIDTH = 110
PARALLEL_BUILDS = 2
CA_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/cert.pem"),
)
CA_NAME = "build-ca/ca.crt"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class BuiltImage:
    """One image of ours on the engine; ``size`` in bytes with its parents' layers, ``current`` = today's tag."""

    name: str
    tag: str
    id: str
    size: int
    current: bool


def find_ca_bundle() -> Path | None:
    """Return the host's certificate bundle, or None where there is none at the usual places."""
    return next((path for path in CA_BUNDLES if path.is_file()), None)


def missing_images(api: APIClient, names: Iterable[str]) -> list[str]:
    """Return those of the images that the engine lacks, in the order given.

    Raise SettingsError for an unknown name and EngineError when the engine does not answer.
    """
    tags = {name: image_tag(name) for name in names}
    present = {tag for image in _engine_images(api) for tag in image["RepoTags"] or ()}
    return [name for name, tag in tags.items() if tag not in present]


def build_images(
    api: APIClient,
    names: Iterable[str],
    *,
    progress: Progress,
    ca_bundle: Path | None = None,
    build_args: Mapping[str, str] | None = None,
) -> None:
    """Build what is missing of the images, with the base image and missing parents, siblings in parallel.

    ``progress`` gets one line of text at a time, also from other threads. ``ca_bundle`` is a host file that package
    managers in the images will trust. ``build_args`` are passed to every build and are no part of the tags:
    ``APT_MIRROR``, ``PIP_INDEX_URL``, ``http_proxy`` and the like. Raise EngineError with the last lines of the
    build's output when one fails; builds that do not depend on it are finished first.
    """
    missing = missing_images(api, names)
    todo = set(missing)
    for name in reversed(with_parents(missing)):
        if any(IMAGES[child].parent == name for child in todo):
            todo.update(missing_images(api, [name]))
    if not todo:
        return
    if any(IMAGES[name].parent not in IMAGES for name in todo):
        base_image(api, progress=progress, mirror=(build_args or {}).get("APT_MIRROR") or MIRROR)
    authority = ca_bundle.read_bytes() if ca_bundle else b""
    _build_all(todo, lambda name: _build_one(api, IMAGES[name], authority, dict(build_args or {}), progress))


def _build_all(todo: set[str], build: Callable[[str], None]) -> None:
    waiting, running = set(todo), dict[Future[None], str]()
    errors: list[BaseException] = []
    with ThreadPoolExecutor(PARALLEL_BUILDS, thread_name_prefix="uniclaw-build") as pool:
        while waiting or running:
            unfinished = waiting | set(running.values())
            for name in sorted(waiting):
                if IMAGES[name].parent not in unfinished:
                    running[pool.submit(build, name)] = name
            waiting -= set(running.values())
            done, _ = wait(running, timeout=BUILD_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                failed = running.pop(future)
                if error := future.exception():
                    errors.append(error)
                    waiting -= {name for name in waiting if failed in with_parents([name])}
    if errors:
        raise errors[0]


def _build_one(
    api: APIClient, spec: ImageSpec, authority: bytes, build_args: dict[str, str], progress: Progress
) -> None:
    tag, started = image_tag(spec.name), time.monotonic()
    progress(f"{spec.name}: building {tag}")
    files = context_files(spec)
    if authority and any(name.startswith("build-ca/") for name in files):
        files[CA_NAME] = authority
    with calls(f"build the image {tag}"):
        stream = api.build(
            fileobj=BytesIO(context_tar(files)),
            custom_context=True,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_SECONDS,
            labels={IMAGE_LABEL: spec.name},
            buildargs={"PARENT": parent_tag(spec), **dict(spec.args), **build_args},
        )
        follow_build(stream, spec.name, progress)
        size = api.images(name=tag)[0]["Size"]
    progress(f"{spec.name}: built in {time.monotonic() - started:.0f} s, {size / 1e6:.0f} MB")


def follow_build(stream: Iterable[Mapping[str, Any]], name: str, progress: Progress) -> None:
    """Report the steps of one build; raise EngineError with the last lines when the stream says that it failed."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    failure = ""
    for event in stream:  # to its end even after an error, or its connection would stay open
        for line in str(event.get("stream", "")).splitlines():
            if line.strip():
                last.append(line.rstrip())
            if line.startswith("Step "):
                progress(f"{name}: {line.strip()[:STEP_WIDTH]}")
        failure = failure or str(event.get("error", ""))
    if failure:
        raise EngineError("\n  ".join([f"the image {name} was not built:", *last, failure]))


def _engine_images(api: APIClient) -> list[dict[str, Any]]:
    with calls("list its images"):
        images: list[dict[str, Any]] = api.images(filters={"label": IMAGE_LABEL})
    return images


def list_images(api: APIClient) -> list[BuiltImage]:
    """Return our images on the engine, sorted by tag; those of other versions of this project too."""
    current = {image_tag(name) for name in IMAGES}
    return sorted(
        (
            BuiltImage(image["Labels"][IMAGE_LABEL], tag, image["Id"], image["Size"], tag in current)
            for image in _engine_images(api)
            for tag in image["RepoTags"] or ()
        ),
        key=lambda built: built.tag,
    )


def prune_images(api: APIClient) -> list[str]:
    """Remove our images whose tag is not current and which nothing uses; return the removed tags."""
    removed = []
    for built in list_images(api):
        if built.current:
            continue
        try:
            api.remove_image(built.tag)
        except failures():
            continue  # a container or a child image still uses it
        removed.append(built.tag)
    return removed


if __name__ == "__main__":
    from pytest_uniclaw.sandbox.images_cli import main

    raise SystemExit(main())
