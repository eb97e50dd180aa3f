"""The one image that is not ours: Debian, from the registry or, where there is none, from Debian's packages."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.engine import calls, explain, failures
from pytest_uniclaw.sandbox.host import run_command
from pytest_uniclaw.sandbox.image_spec import BASE_IMAGE

if TYPE_CHECKING:
    from docker import APIClient

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MOUNTED = ("./dev/", "./proc/", "./sys/")
"""What the engine mounts itself; nothing below is taken."""
DROPPED = (
    "./usr/share/doc/",
    "./usr/share/info/",
    "./usr/share/locale/",
    "./usr/share/man/",
    "./var/cache/apt/",
    "./var/lib/apt/lists/",
    "./var/log/",
)
"""Reading matter and caches: of these only the folders and the copyright files are taken."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class BaseFacts:
    """What decides how the base image is had."""

    present: bool
    pull_error: str | None = None
    root: bool = False
    apt: bool = False
    debootstrap: bool = False


BaseStep = Literal["nothing", "bootstrap", "install and bootstrap", "give up"]


def plan_base(facts: BaseFacts) -> BaseStep:
    """Return what to do once the pull has been tried (``pull_error``) or was not needed."""
    if facts.present or facts.pull_error is None:
        return "nothing"
    if facts.root and facts.debootstrap:
        return "bootstrap"
    if facts.root and facts.apt:
        return "install and bootstrap"
    return "give up"


def base_image(api: APIClient, *, progress: Progress, mirror: str = MIRROR, tag: str = BASE_IMAGE) -> None:
    """Make sure that the engine has the base image.

    Order: present, pulled, or as root on a machine with apt made by ``debootstrap`` from ``mirror`` and imported.
    Raise EngineError with what to do when none is possible.
    """
    if _present(api, tag):
        return
    progress(f"base image {tag}: pulling")
    pull_error = _pull(api, tag)
    facts = BaseFacts(
        present=False,
        pull_error=pull_error,
        root=os.geteuid() == 0,
        apt=shutil.which("apt-get") is not None,
        debootstrap=shutil.which("debootstrap") is not None and KEYRING.is_file(),
    )
    step = plan_base(facts)
    if step == "nothing":
        return
    if step == "give up":
        raise EngineError(
            f"the base image {tag} is not there and cannot be pulled ({pull_error}).\n"
            "  fix: give the engine a registry, load the image with `docker load`, or run the set-up as root on "
            "Debian or Ubuntu, where it is made with debootstrap"
        )
    progress(f"base image {tag}: no registry answers ({pull_error}); making it from Debian's packages")
    if step == "install and bootstrap":
        progress("base image: apt-get install debootstrap")
        run_command(["apt-get", "update", "-qq"])
        packages = ["debootstrap", "debian-archive-keyring"]
        frontend = ["env", "DEBIAN_FRONTEND=noninteractive"]
        run_command([*frontend, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])
    bootstrap_image(api, tag=tag, mirror=mirror, progress=progress)


def bootstrap_image(api: APIClient, *, tag: str, mirror: str, progress: Progress) -> None:
    """Make a minimal Debian with ``debootstrap`` (root only) and import it as ``tag``; raise EngineError on failure."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="uniclaw-base-") as folder:
        root, archive = Path(folder, "root"), Path(folder, "base.tar")
        run_command(["debootstrap", "--variant=minbase", f"--keyring={KEYRING}", SUITE, str(root), mirror])
        _write_sources(root, mirror)
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=slim_filter)
        repository, _, version = tag.partition(":")
        with calls(f"import {tag}"):
            reply = api.import_image(
                src=str(archive), repository=repository, tag=version, changes=['CMD ["bash"]', "ENV LANG=C.UTF-8"]
            )
    if not _present(api, tag):
        raise EngineError(f"the engine did not import {tag}: {reply}")
    progress(f"base image {tag}: made in {time.monotonic() - started:.0f} s")


def slim_filter(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Decide for one entry of the new root (``./…``) whether it belongs in a slim image; None leaves it out."""
    if member.name.startswith(MOUNTED):
        return None
    if member.isdir() or not member.name.startswith(DROPPED) or member.name.endswith("/copyright"):
        return member
    return None


def _write_sources(root: Path, mirror: str) -> None:
    lines = [f"deb {mirror} {SUITE} main", f"deb {mirror} {SUITE}-updates main"]
    if mirror.endswith("/debian"):
        lines.append(f"deb {mirror}-security {SUITE}-security main")
    (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _present(api: APIClient, tag: str) -> bool:
    with calls(f"look up {tag}"):
        return bool(api.images(name=tag))


def _pull(api: APIClient, tag: str) -> str | None:
    """Pull a tag; return None, or why it failed in one line."""
    repository, _, version = tag.partition(":")
    try:
        events = list(api.pull(repository, tag=version, stream=True, decode=True))
    except failures() as error:
        return explain(error)
    return next((" ".join(str(event["error"]).split()) for event in events if "error" in event), None)
