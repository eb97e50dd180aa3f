"""The command line of the images, for ``scripts/setup`` and ``uniclaw images``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_uniclaw.errors import UniclawError
from pytest_uniclaw.sandbox.engine import connected
from pytest_uniclaw.sandbox.image_spec import (
    DEMO_IMAGES,
    IMAGES,
    context_files,
    context_tar,
    image_tag,
    parent_tag,
    spec_of,
)
from pytest_uniclaw.sandbox.images import build_images, find_ca_bundle, list_images, missing_images, prune_images


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, 1 for ``missing`` with something missing, 2 for an error."""
    options = _parser().parse_args(arguments)
    every = [name for name, spec in IMAGES.items() if not spec.on_demand]
    names = every if options.all else options.names or list(DEMO_IMAGES)
    try:
        return _run(options, names)
    except UniclawError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="uniclaw images", description="The images of pytest-uniclaw.")
    parser.add_argument("command", choices=("build", "missing", "list", "tag", "context", "prune"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEMO_IMAGES)}")
    parser.add_argument("--all", action="store_true", help="every image that can be built, but agents' with a desktop")
    parser.add_argument("--ca-bundle", type=Path, default=find_ca_bundle(), help="trusted by the images' downloads")
    parser.add_argument("--build-arg", action="append", default=[], metavar="KEY=VALUE", help="not part of the tag")
    return parser


def _run(options: argparse.Namespace, names: list[str]) -> int:
    if options.command == "tag":
        _say(*(image_tag(name) for name in names))
        return 0
    if options.command == "context":
        # For a build by hand: … context grader | docker build --build-arg PARENT=$(… tag runtime) -
        sys.stdout.buffer.write(context_tar(context_files(spec_of(names[0]))))
        sys.stderr.write(f"parent: {parent_tag(spec_of(names[0]))}\n")
        return 0
    return _with_engine(options, names)


def _with_engine(options: argparse.Namespace, names: list[str]) -> int:
    with connected(None) as api:
        if options.all:
            names = fitting(names, str(api.version()["Arch"]))
        if options.command == "missing":
            missing = missing_images(api, names)
            _say(*missing)
            return 1 if missing else 0
        if options.command == "prune":
            _say(*(f"removed {tag}" for tag in prune_images(api)))
            return 0
        built = list_images(api)
        if options.command == "build":
            arguments = dict(item.split("=", 1) for item in options.build_arg if "=" in item)
            build_images(api, names, progress=_say, ca_bundle=options.ca_bundle, build_args=arguments)
            built = [image for image in list_images(api) if image.current and image.name in names]
    for image in built:
        _say(f"{image.tag:<42} {image.size / 1e6:7.0f} MB  {'' if image.current else '(not current)'}".rstrip())
    return 0


def fitting(names: Sequence[str], architecture: str) -> list[str]:
    """Return the images that can be built on an engine's architecture (``amd64``, ``arm64`` …); name the others.

    An image cannot whose lock file has native packages, and none for that processor.
    """
    processor = {"amd64": "x64"}.get(architecture, architecture)
    fits = [name for name in names if not (known := _processors(name)) or processor in known]
    for name in names:
        if name not in fits:
            sys.stderr.write(f"NOT RUN: {name} is not built, its lock file has nothing for {architecture}\n")
    return fits


def _processors(name: str) -> set[str]:
    """Return the processors that an image's lock file has packages for, by npm's names."""
    lock = json.loads(context_files(spec_of(name)).get("package-lock.json", b"{}"))
    return {processor for package in lock.get("packages", {}).values() for processor in package.get("cpu", ())}


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
