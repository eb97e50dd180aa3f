"""PID 1 of a local sandbox: builds its root, then serves its owner over two pipes until their end.

Started by :mod:`.local_holder` inside fresh namespaces; standard library only. The first line on stdin is the plan,
each further line one request, and each gets one JSON line on stdout::

    {"op": "list"}                       every process: {"processes": [{"pid", "start", …}]}
    {"op": "sweep", "keep": [[pid, start]…], "uid": 1000 | null}    kill the rest: {"killed": n, "left": […]}
    {"op": "stop"} / {"op": "continue"}  freeze and thaw every process: {}

When stdin ends, because its owner closed it or died, this process ends and the kernel kills all others with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from pytest_uniclaw.sandbox import guardian, sweep
from pytest_uniclaw.sandbox.local_root import Account, RootPlan, build

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
MODEL_PORT = 4010
MODEL_SOCKET = "/run/uniclaw/agent.sock"


def main() -> None:
    """Build, say ``{"ready": …}`` or ``{"error": …}``, then serve."""
    plan = json.loads(sys.stdin.buffer.readline() or b"{}")
    host_pid = int(str(Path("/proc/self").readlink()))  # still the host's /proc, so the host's number
    os.umask(0o022)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        raise_loopback()
        build(root_plan(plan))
        forwarder = start_forwarder() if plan["gateway"] else None
    except (OSError, subprocess.CalledProcessError) as error:
        answer({"error": str(error)})
        return
    signal.signal(signal.SIGCHLD, reap)
    answer({"ready": host_pid})
    for line in sys.stdin.buffer:
        answer(serve(json.loads(line), forwarder))


def root_plan(plan: dict[str, Any]) -> RootPlan:
    """Read the plan from its JSON form."""
    return RootPlan(
        size=plan["size"], python=plan["python"], binds=tuple((source, target) for source, target in plan["binds"]),
        accounts=tuple(Account(name, number, home) for name, number, home in plan["accounts"]),
    )  # fmt: skip


def answer(value: dict[str, Any]) -> None:
    """Write one line to the owner."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def serve(request: dict[str, Any], forwarder: tuple[int, int] | None) -> dict[str, Any]:
    """Do what one request asks."""
    if request["op"] == "list":
        return {"processes": [process for process in run_sweep("--list") if process["pid"] != 1]}
    if request["op"] == "sweep":
        keep = [tuple(pair) for pair in request["keep"]] + ([forwarder] if forwarder else [])
        arguments = ["--keep", ",".join(f"{pid}:{start}" for pid, start in keep)]
        if request["uid"] is not None:
            arguments += ["--uid", str(request["uid"])]
        return dict(run_sweep(*arguments))
    with contextlib.suppress(ProcessLookupError):  # there may be nobody to signal
        os.kill(-1, signal.SIGSTOP if request["op"] == "stop" else signal.SIGCONT)
    return {}


def run_sweep(*arguments: str) -> Any:
    """Run the sweeper that containers have as a program, in this process; return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        sweep.main(list(arguments))
    return json.loads(printed.getvalue())


def reap(number: int, frame: object) -> None:
    """Collect every dead child, its own and those it inherited."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def raise_loopback() -> None:
    """Bring up ``lo``, the only interface of a new network namespace, and name the host. Raises OSError."""
    socket.sethostname("sandbox")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def start_forwarder() -> tuple[int, int]:
    """Forward the models' loopback port to the gateway's socket in a child; return its pid and start time."""
    listener = socket.create_server(("127.0.0.1", MODEL_PORT), backlog=128)
    listener.setblocking(False)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(0)
            guardian.Forwarder(listener, MODEL_SOCKET).run()
        finally:
            os._exit(1)
    listener.close()
    found = [process for process in run_sweep("--list") if process["pid"] == pid]
    return pid, int(found[0]["start"]) if found else 0
