"""Look at the desktop after a turn; run as root inside the container, from ``/opt/uniclaw/desktop/probe.py``.

    probe.py FOLDER DISPLAY [--pictures]

FOLDER gets ``probe.json``: windows with their places, the active window's title, processes and what could not be seen;
and, with ``--pictures``, ``screenshot.png``. Each step has a deadline of its own, so that a screen that hangs leaves
the list of processes. The exit status is 3 when there is no window manager to ask, 4 when it did not answer in time.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

STEP_SECONDS = 10
MOST = 500
COMMAND_LENGTH = 300
NO_SCREEN, NO_ANSWER = 3, 4
ROW = r"(0x[0-9a-f]+)\s+(-?\d+)\s+(-?\d+)\s+(-?\d+)\s+(-?\d+)\s+(\d+)\s+(\d+)\s+"
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
"""Who talks to the screen: its server may be one that the executor has put there."""
PICTURE = (
    "import sys; from PIL import ImageGrab; "
    "ImageGrab.grab(xdisplay=sys.argv[1]).convert('RGB').save(sys.stdout.buffer, 'PNG', compress_level=6)"
)
MOST_BYTES = 16_000_000


def ask(problems, display, *command):
    """Return a program's output as bytes; what keeps it from answering is noted."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "DISPLAY": display}
    try:
        done = subprocess.run(command, capture_output=True, timeout=STEP_SECONDS, check=False, env=variables, **NOBODY)
    except (OSError, subprocess.TimeoutExpired) as error:
        problems.append(f"{command[0]}: {type(error).__name__}")
        return None
    if done.returncode:
        problems.append(f"{command[0]}: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}")
        return None
    return done.stdout


def words(output):
    """Return what a program said, an empty text when it did not answer."""
    return (output or b"").decode("utf-8", "replace")


def windows(text, host):
    """Parse ``wmctrl -lGpx``: one window a row, places in pixels of the screen.

    A class and a title may hold blanks: between them stands the name of the host, or N/A where a program gave none.
    A program that says it runs elsewhere has a class without blanks for all that can be told.
    """
    known = re.compile(rf"{ROW}(.+?) {{2,}}(?:{re.escape(host)}|N/A)(?: (.*))?")
    stranger = re.compile(rf"{ROW}(\S+) +\S+ ?(.*)")
    found = []
    for row in text.splitlines()[:MOST]:
        if match := known.fullmatch(row) or stranger.fullmatch(row):
            number, _, pid, x, y, width, height, kind, title = match.groups()
            found.append({"id": number, "pid": int(pid), "x": int(x), "y": int(y), "width": int(width),
                          "height": int(height), "class": kind, "title": (title or "")[:COMMAND_LENGTH]})
    return found


def processes():
    """Return pid, user id and command line of everything that runs, kernel threads and this program left out."""
    found = []
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            user = folder.stat().st_uid
        except OSError:
            continue  # it ended meanwhile
        if command and int(folder.name) not in (1, os.getpid(), os.getppid()):
            found.append({"pid": int(folder.name), "uid": user, "command": command[:COMMAND_LENGTH]})
    return found[:MOST]


def main(folder, display, *options):
    """Write what is seen; return the exit status."""
    target = Path(folder)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o755, parents=True)
    problems = []
    manager = ask(problems, display, "wmctrl", "-m")
    listed = ask([], display, "wmctrl", "-lGpx") if manager else None  # fails where there has never been a window
    active = ask([], display, "xdotool", "getactivewindow", "getwindowname") if listed else None
    size = re.search(r"dimensions:\s+(\d+)x(\d+)", words(ask([], display, "xdpyinfo")) if manager else "")
    seen = {
        "screen": [int(size[1]), int(size[2])] if size else None,
        "windows": windows(words(listed), socket.gethostname()),
        "active": words(active).strip()[:COMMAND_LENGTH],
        "processes": processes(),
        "problems": problems,
    }
    if manager and "--pictures" in options:
        picture = ask(problems, display, sys.executable, "-I", "-c", PICTURE, display)
        if picture and len(picture) < MOST_BYTES:
            (target / "screenshot.png").write_bytes(picture)
    (target / "probe.json").write_text(json.dumps(seen, indent=1, ensure_ascii=True))
    if manager:
        return 0
    return NO_ANSWER if any(problem.endswith(subprocess.TimeoutExpired.__name__) for problem in problems) else NO_SCREEN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
