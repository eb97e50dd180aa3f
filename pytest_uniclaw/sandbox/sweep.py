"""Kill what an executor left running; run as root inside the container, from ``/opt/uniclaw/sweep.py``.

Standard library only. ::

    sweep.py --list                                        every process, as JSON
    sweep.py [--keep PID:START,PID:START…] [--uid UID]     kill, then {"killed": n, "left": [process…]}

A process is ``{"pid", "start", "ppid", "sid", "uid", "cmd"}``; ``start`` is field 22 of ``/proc/<pid>/stat`` (clock
ticks since boot), which together with the pid names a process for ever. Zombies are not processes here; a process
whose first thread has ended looks like one, but lives while another thread of it runs.

What lives on: PID 1, this process and its ancestors, the processes named by ``--keep`` whose start time agrees,
their descendants, and what is in their sessions. With ``--uid`` also everything that no longer has that user id in
any of its four places (real, effective, saved, file system). Everything is stopped in one atomic step first
(``kill(-1, SIGSTOP)``), so nothing can fork its way past the scan; what may live is continued afterwards.
The exit status is 0 when nothing is left, else 1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

DEADLINE_SECONDS = 5.0
STEP_SECONDS = 0.01


class Process:
    """One process as ``/proc`` shows it; ``uids`` are its real, effective, saved and file system user ids."""

    def __init__(self, folder: Path) -> None:
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        status = (folder / "status").read_text(errors="replace")
        self.pid, self.state, self.ppid = int(folder.name), fields[0], int(fields[1])
        self.sid, self.threads, self.start = int(fields[3]), int(fields[17]), int(fields[19])
        self.uids = [int(word) for word in status.partition("\nUid:")[2].partition("\n")[0].split()]
        self.cmd = (folder / "cmdline").read_bytes()[:4096].decode(errors="replace").replace("\0", " ").strip()

    def lives(self) -> bool:
        """Tell whether a thread of it can still run."""
        return bool(self.uids) and (self.state not in ("Z", "X") or self.threads > 1)

    def as_json(self) -> dict[str, object]:
        """Return the documented record; ``uid`` is the effective user id."""
        return {
            "pid": self.pid,
            "start": self.start,
            "ppid": self.ppid,
            "sid": self.sid,
            "uid": self.uids[1],
            "cmd": self.cmd,
        }


def processes() -> dict[int, Process]:
    """Return every living process of this pid namespace by pid."""
    table = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            process = Process(folder)
        except (OSError, IndexError):
            continue  # it ended while it was read
        if process.lives():
            table[process.pid] = process
    return table


def spared(table: dict[int, Process], keep: set[tuple[int, int]]) -> set[int]:
    """Return the pids that live on: PID 1, this process and its ancestors, and the trees and sessions of ``keep``."""
    roots = {pid for pid, start in keep if pid in table and table[pid].start == start}
    sessions = {table[pid].sid for pid in roots} - {0, 1}
    alive = roots | {pid for pid, process in table.items() if process.sid in sessions}
    size = -1
    while size != len(alive):
        size = len(alive)
        alive |= {pid for pid, process in table.items() if process.ppid in alive}
    me = os.getpid()
    while me in table:
        alive.add(me)
        me = table[me].ppid
    return alive | {1}


def targets(keep: set[tuple[int, int]], uid: int | None) -> list[Process]:
    """Return the processes that must die and are not dead yet."""
    table = processes()
    alive = spared(table, keep)
    return [process for pid, process in table.items() if pid not in alive and (uid is None or uid in process.uids)]


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone or out of reach is no error here, the last scan reports it."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def sweep(keep: set[tuple[int, int]], uid: int | None) -> tuple[int, list[Process]]:
    """Kill until nothing is left or the deadline passes; return the number killed and what is left."""
    give_up = time.monotonic() + DEADLINE_SECONDS
    seen: set[tuple[int, int]] = set()
    send(-1, SIGSTOP)
    try:
        condemned = targets(keep, uid)
        for process in condemned:
            send(process.pid, SIGKILL)
    finally:
        send(-1, SIGCONT)
    while condemned:
        seen |= {(process.pid, process.start) for process in condemned}
        if time.monotonic() > give_up:
            break
        time.sleep(STEP_SECONDS)
        condemned = targets(keep, uid)
        for process in condemned:
            send(process.pid, SIGKILL)
    return len(seen - {(process.pid, process.start) for process in condemned}), condemned


def parse_keep(text: str) -> set[tuple[int, int]]:
    """Read ``pid:start,pid:start``."""
    pairs = (item.split(":") for item in text.split(",") if item)
    return {(int(pid), int(start)) for pid, start in pairs}


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    if arguments == ["--list"]:
        sys.stdout.write(json.dumps([process.as_json() for process in processes().values()]) + "\n")
        return 0
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    uid = options.get("--uid")
    killed, left = sweep(parse_keep(options.get("--keep", "")), None if uid is None else int(uid))
    sys.stdout.write(json.dumps({"killed": killed, "left": [process.as_json() for process in left]}) + "\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
