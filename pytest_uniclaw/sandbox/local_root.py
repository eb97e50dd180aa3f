"""The root file system of a local sandbox: the host's programs read-only, everything else new and in memory.

Runs inside fresh mount, pid and network namespaces (see :mod:`.local_init`), standard library only. Nothing of the
host is there that is not listed here: no home, no package, no temporary file, no socket.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_RELATIME = 32, 1024, 2048, 4096, 16384, 1 << 21
MNT_DETACH = 2
NEW_ROOT = Path("/sys")
"""An existing folder to build on; what it holds on the host is not needed meanwhile, and the mount is private."""
SYSTEM = ("bin", "sbin", "usr", "lib", "lib32", "lib64", "libx32", "etc")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
SWITCHES = ("bus", "fs", "irq", "sys", "sysrq-trigger")
HIDDEN = ("kcore", "keys", "sched_debug", "timer_list")
_FLAGS = {
    "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC, "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME, "relatime": MS_RELATIME,
}  # fmt: skip
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Account:
    """A line of the sandbox's ``/etc/passwd``; without real root on the host every account is uid 0."""

    name: str
    number: int
    home: str


@dataclass(frozen=True)
class RootPlan:
    """What to build. ``size`` bounds all that is written, in bytes; ``binds`` are extra host folders, read-only."""

    size: int
    accounts: tuple[Account, ...]
    binds: tuple[tuple[str, str], ...] = ()
    python: str = ""
    """A host interpreter to offer as ``python3``, for hosts that have none where programs are."""


def build(plan: RootPlan) -> None:
    """Build the new root, enter it, and let go of the host's. Raises OSError that names the path."""
    mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, f"size={plan.size},mode=755")
    for name in SYSTEM:
        add_system(Path("/", name))
    add_folders(plan)
    add_accounts(plan.accounts)
    add_devices()
    add_proc()
    for source, target in plan.binds:
        add_bind(Path(source), Path(target))
    if plan.python:
        (NEW_ROOT / "opt/uniclaw/bin/python3").symlink_to(plan.python)
    os.chdir(NEW_ROOT)
    subprocess.run(["pivot_root", ".", "."], check=True, capture_output=True)
    unmount(".")
    os.chdir("/")


def mount(source: str, target: Path, kind: str | None, flags: int, data: str = "") -> None:
    """The system call. Raises OSError."""
    done = _LIBC.mount(
        source.encode(), os.fsencode(target), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode()
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} ({kind or 'bind'}): {os.strerror(number)}", str(target))


def unmount(target: str) -> None:
    """Take a mount and all below it out of this namespace. Raises OSError."""
    if _LIBC.umount2(target.encode(), MNT_DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def add_system(path: Path) -> None:
    """Show one of the host's system folders, or the link that stands in its place."""
    inside = NEW_ROOT / path.relative_to("/")
    if path.is_symlink():
        inside.symlink_to(path.readlink())
    elif path.is_dir():
        add_bind(path, path)


def add_bind(source: Path, target: Path) -> None:
    """Show a host folder or file at ``target``, read-only; missing parents are made, open to every account."""
    inside = NEW_ROOT / target.relative_to("/")
    for parent in reversed(inside.relative_to(NEW_ROOT).parents):
        folder = NEW_ROOT / parent
        folder.mkdir(exist_ok=True)
        if folder.stat().st_dev == NEW_ROOT.stat().st_dev:
            folder.chmod(folder.stat().st_mode | 0o555)
    if source.is_dir():
        inside.mkdir(exist_ok=True)
    elif not inside.exists():
        inside.touch()
    mount(str(source), inside, None, MS_BIND | MS_REC)
    read_only(inside)


def read_only(target: Path) -> None:
    """Make a mount and those below it read-only, keeping the flags that a user namespace may not drop."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    for row in (line.split() for line in table.splitlines()):
        point = row[4].encode("utf-8", "surrogateescape").decode("unicode_escape") if "\\" in row[4] else row[4]
        if point == str(target) or point.startswith(f"{target}/"):
            flags = sum(_FLAGS.get(option, 0) for option in row[5].split(","))
            mount("none", Path(point), None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def add_folders(plan: RootPlan) -> None:
    """Make the writable folders."""
    open_to_all = ("tmp", "var/tmp", "dev/shm")
    plain = (
        "dev/pts", "home", "mnt", "opt/uniclaw/bin", "opt/uniclaw/services", "proc", "run/uniclaw", "srv", "sys",
        "tmp_workspace", "var/cache", "var/lib", "var/log",
    )  # fmt: skip
    for name in (*plain, *open_to_all):
        (NEW_ROOT / name).mkdir(parents=True, exist_ok=True)
    for name in open_to_all:
        (NEW_ROOT / name).chmod(0o1777)
    (NEW_ROOT / "var/run").symlink_to("/run")
    for account in plan.accounts:
        home = NEW_ROOT / account.home.lstrip("/")
        if account.home.startswith(("/home/", "/root")):
            home.mkdir(mode=0o700)
            os.chown(home, account.number, account.number)


def add_accounts(accounts: Iterable[Account]) -> None:
    """Lay our own account files and host names over the host's."""
    rows = tuple(accounts)
    passwd = "".join(f"{a.name}:x:{a.number}:{a.number}::{a.home}:/bin/bash\n" for a in rows)
    group = "".join(f"{a.name}:x:{a.number}:\n" for a in rows)
    texts = {"passwd": passwd, "group": group, "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n"}
    for name, text in texts.items():
        target = NEW_ROOT / "etc" / name
        if target.exists():
            source = NEW_ROOT / f".{name}"
            source.write_text(text)
            source.chmod(0o644)
            mount(str(source), target, None, MS_BIND)
            read_only(target)
            source.unlink()


def add_proc() -> None:
    """Show this pid namespace; the kernel's switches are read-only, and its memory and keys are not there."""
    mount("proc", NEW_ROOT / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in SWITCHES:
        target = NEW_ROOT / "proc" / name
        if target.exists():
            mount(str(target), target, None, MS_BIND | MS_REC)
            mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in HIDDEN:
        if (NEW_ROOT / "proc" / name).exists():
            mount("/dev/null", NEW_ROOT / "proc" / name, None, MS_BIND)


def add_devices() -> None:
    """Show the harmless devices and a terminal service of the sandbox's own."""
    for name in DEVICES:
        source, target = Path("/dev", name), NEW_ROOT / "dev" / name
        if source.exists() and stat.S_ISCHR(source.stat().st_mode):
            target.touch()
            mount(str(source), target, None, MS_BIND)
    mount("devpts", NEW_ROOT / "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target_name in links.items():
        (NEW_ROOT / "dev" / name).symlink_to(target_name)
