"""The guardian (PID 1 and forwarder) and the sweep, as processes and inside real containers."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_uniclaw.sandbox import guardian, sweep
from pytest_uniclaw.sandbox.images import image_tag

SECONDS = 20
MEGABYTE = 1024 * 1024


class UnixServer:
    """A threaded Unix server; ``handle`` gets each connection in its own thread."""

    def __init__(self, path: Path, handle: Callable[[socket.socket], None]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(128)
        self.handle = handle
        self.threads: list[threading.Thread] = []
        self.acceptor = threading.Thread(target=self._accept)
        self.acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.settimeout(SECONDS)
            thread = threading.Thread(target=self._serve, args=(sock,))
            thread.start()
            self.threads.append(thread)

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            self.handle(sock)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in [self.acceptor, *self.threads]:
            thread.join(SECONDS)


def echo(sock: socket.socket) -> None:
    """Read to the end of stream, then answer with all of it and its length."""
    data = read_all(sock)
    sock.sendall(data + f"|{len(data)}".encode())


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.fixture
def forwarder(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A running guardian (not as PID 1) on a free port; ``serve(handle)`` opens the Unix side."""
    path = tmp_path / "agent.sock"
    command = [sys.executable, "-I", "-S", "-u", guardian.__file__, "0", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().split(" -> ")[0].rpartition(":")[2])
    servers: list[UnixServer] = []

    def serve(handle: Callable[[socket.socket], None]) -> None:
        servers.append(UnixServer(path, handle))

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)

    yield SimpleNamespace(process=process, serve=serve, connect=connect)
    process.kill()
    process.wait(SECONDS)
    process.stdout.close()
    for server in servers:
        server.close()


def ask(connect: Callable[[], socket.socket], data: bytes) -> bytes:
    with connect() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def test_a_half_closed_request_gets_its_whole_answer(forwarder: SimpleNamespace) -> None:
    forwarder.serve(echo)
    payload = bytes(range(256)) * 8192
    assert ask(forwarder.connect, payload) == payload + b"|2097152"


def test_streamed_chunks_arrive_one_by_one(forwarder: SimpleNamespace) -> None:
    more = threading.Event()

    def stream(sock: socket.socket) -> None:
        sock.recv(10)
        sock.sendall(b"first")
        assert more.wait(SECONDS)
        sock.sendall(b"second")

    forwarder.serve(stream)
    with forwarder.connect() as sock:
        sock.sendall(b"go")
        assert sock.recv(100) == b"first"  # before the second exists
        more.set()
        assert read_all(sock) == b"second"


def test_a_slow_reader_slows_its_writer(forwarder: SimpleNamespace) -> None:
    sent, released = [0], threading.Event()

    def flood(sock: socket.socket) -> None:
        sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent[0] < 64 * MEGABYTE:
                sent[0] += sock.send(b"x" * 65536)
        released.set()

    forwarder.serve(flood)
    with forwarder.connect() as sock:
        assert released.wait(SECONDS)
        assert 0 < sent[0] < 32 * MEGABYTE  # kernel buffers only; nothing is hoarded in the forwarder
        assert len(read_all(sock)) == sent[0]


def test_an_early_answer_survives_an_unfinished_request(forwarder: SimpleNamespace) -> None:
    def refuse(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"413 too large")

    forwarder.serve(refuse)
    with forwarder.connect() as sock:
        with contextlib.suppress(OSError):
            for _ in range(64):
                sock.sendall(b"x" * 65536)
        assert sock.recv(100) == b"413 too large"


def test_a_hundred_connections_at_once(forwarder: SimpleNamespace) -> None:
    together = threading.Barrier(100, timeout=SECONDS)

    def meet(sock: socket.socket) -> None:
        data = sock.recv(100)
        together.wait()
        sock.sendall(data)

    forwarder.serve(meet)

    def one(number: int) -> bool:
        with forwarder.connect() as sock:
            sock.sendall(b"%d" % number)
            return read_all(sock) == b"%d" % number

    with ThreadPoolExecutor(100) as pool:
        assert all(pool.map(one, range(100)))


def test_without_a_socket_connections_are_closed_and_later_ones_served(forwarder: SimpleNamespace) -> None:
    with forwarder.connect() as sock:
        assert sock.recv(1) == b""
    forwarder.serve(echo)
    assert ask(forwarder.connect, b"hello") == b"hello|5"


def test_a_reset_by_either_side_ends_the_other(forwarder: SimpleNamespace) -> None:
    ended = threading.Event()

    def wait_for_the_end(sock: socket.socket) -> None:
        while sock.recv(100):
            pass
        ended.set()

    forwarder.serve(wait_for_the_end)
    with forwarder.connect() as sock:
        sock.sendall(b"x")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
    assert ended.wait(SECONDS)


def test_sigterm_ends_it_with_status_zero(forwarder: SimpleNamespace) -> None:
    forwarder.process.send_signal(signal.SIGTERM)
    assert forwarder.process.wait(SECONDS) == 0


def process(pid: int, ppid: int, sid: int, start: int = 7) -> Any:
    return SimpleNamespace(pid=pid, ppid=ppid, sid=sid, start=start)


def test_spared_are_the_trees_and_sessions_of_what_is_kept() -> None:
    rows = [process(1, 0, 1), process(10, 0, 10), process(11, 10, 11), process(12, 11, 12), process(13, 1, 10)]
    rows += [process(20, 0, 20), process(21, 20, 20), process(22, 1, 20)]
    table = {row.pid: row for row in rows}
    assert sweep.spared(table, {(10, 7)}) == {1, 10, 11, 12, 13}


def test_a_recycled_pid_is_not_kept() -> None:
    table = {row.pid: row for row in [process(1, 0, 1), process(10, 0, 10, start=8)]}
    assert sweep.spared(table, {(10, 7)}) == {1}


def test_keep_of_pid_one_does_not_spare_the_orphans_it_adopted() -> None:
    table = {row.pid: row for row in [process(1, 0, 1), process(30, 1, 30)]}
    assert sweep.spared(table, set()) == {1}


def test_keep_list_is_read() -> None:
    assert sweep.parse_keep("5:70,6:80") == {(5, 70), (6, 80)}
    assert sweep.parse_keep("") == set()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the deadline is an assertion."""
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up, "the deadline passed"
        time.sleep(0.05)


@pytest.fixture
def container() -> Iterator[Any]:
    """A running container of the runtime image, as the harness would start it but with no network."""
    import docker

    client = docker.from_env(timeout=60)
    made = client.containers.run(
        image_tag("runtime"), detach=True, network_mode="none", labels={"uniclaw.test": "guardian"}, pids_limit=400
    )
    until(lambda: b"uniclaw guardian: 127.0.0.1:4010" in made.logs())
    yield made
    made.remove(force=True)
    client.close()


def run(container: Any, script: str, user: str = "root", detach: bool = False) -> str:
    done = container.exec_run(["bash", "-c", script], user=user, detach=detach)
    return "" if detach else done.output.decode()


def listing(container: Any) -> list[dict[str, Any]]:
    return json.loads(run(container, "exec python3 -IS /opt/uniclaw/sweep.py --list"))


def swept(container: Any, arguments: str = "") -> dict[str, Any]:
    return json.loads(run(container, f"exec python3 -IS /opt/uniclaw/sweep.py {arguments}"))


def named(container: Any, words: str) -> list[dict[str, Any]]:
    return [row for row in listing(container) if words in row["cmd"]]


@pytest.mark.docker
def test_nothing_inside_ends_the_container(container: Any) -> None:
    run(container, "kill -9 -1; kill -TERM -1; for s in KILL TERM INT HUP QUIT USR1 ALRM STOP; do kill -$s 1; done")
    forged = """
import ctypes, os, struct
number = {"x86_64": 129, "aarch64": 138}[os.uname().machine]  # rt_sigqueueinfo
info = struct.pack("iiiiii", 15, 0, -1, 0, 0, 0) + bytes(104)  # a queued SIGTERM that claims to come from pid 0
assert ctypes.CDLL(None).syscall(number, 1, 15, info) == 0
"""
    assert run(container, f"python3 -c '{forged}'") == ""  # the kernel took it
    assert run(container, "echo alive") == "alive\n"
    container.reload()
    assert container.status == "running"


@pytest.mark.docker
def test_docker_stop_is_prompt_and_clean(container: Any) -> None:
    started = time.monotonic()
    container.stop(timeout=30)
    assert time.monotonic() - started < 15  # a PID 1 that ignores SIGTERM would take the whole grace
    container.reload()
    assert container.attrs["State"]["ExitCode"] == 0


@pytest.mark.docker
def test_orphans_are_reaped(container: Any) -> None:
    run(container, "for i in $(seq 50); do (setsid true &) ; done")
    until(lambda: "Z" not in run(container, "cat /proc/[0-9]*/stat | sed 's/.*) //' | cut -c1"))


@pytest.mark.docker
def test_the_model_api_is_reached_without_a_network(container: Any) -> None:
    server = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('/run/uniclaw/agent.sock'); s.listen()\n"
    server += "while True: c = s.accept()[0]; c.recv(999); c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\npong'); c.close()"
    status = run(container, "curl -s http://127.0.0.1:4010/v1; echo $?").strip()
    assert status in ("52", "56")  # closed at once, with or without the request read
    container.exec_run(["python3", "-c", server], detach=True)
    until(lambda: run(container, "test -S /run/uniclaw/agent.sock && echo yes") == "yes\n")
    run(container, "chmod 777 /run/uniclaw/agent.sock")
    assert run(container, "curl -sS http://127.0.0.1:4010/v1/models", user="agent") == "pong"


NASTY = """
setsid sleep 1001 & (sleep 1002 & disown) & nohup sleep 1003 >/dev/null 2>&1 &
bash -c 'trap "" TERM INT HUP; while :; do sleep 1004; done' &
python3 - <<'P' &
import os, time
for _ in range(40):                 # each generation leaves its parent behind and forks on
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork() == 0:
        time.sleep(1005)
        os._exit(0)
    time.sleep(0.02)
time.sleep(1006)
P
wait
"""


@pytest.mark.docker
def test_a_sweep_leaves_only_what_is_kept(container: Any) -> None:
    container.exec_run(["bash", "-c", "sleep 901 & (setsid sleep 902 &) & sleep 903"], user="service", detach=True)
    until(lambda: len(named(container, "sleep 90")) >= 4)
    service = min(named(container, "sleep 90"), key=lambda row: row["pid"])
    container.exec_run(["bash", "-c", NASTY], user="agent", detach=True)
    until(lambda: len(named(container, "sleep 100")) >= 4 and len(named(container, "python3 -")) >= 2)
    report = swept(container, f"--keep {service['pid']}:{service['start']}")
    assert report["left"] == []
    assert report["killed"] >= 6
    left = listing(container)
    assert {row["uid"] for row in left} <= {0, 999}
    commands = [row["cmd"] for row in left]
    assert "sleep 901" in commands  # in the kept session
    assert "sleep 902" not in commands  # left the kept session and was adopted by PID 1
    assert run(container, f"ps -o stat= -p {service['pid']}").strip()[0] == "S"  # continued after the freeze


@pytest.mark.docker
def test_a_sweep_of_one_user_leaves_the_others(container: Any) -> None:
    container.exec_run(["sleep", "911"], detach=True)
    container.exec_run(["sleep", "912"], user="agent", detach=True)
    until(lambda: len(named(container, "sleep 91")) == 2)
    assert swept(container, "--uid 1000") == {"killed": 1, "left": []}
    assert [row["cmd"] for row in named(container, "sleep 91")] == ["sleep 911"]


HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(1007,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit: ends this thread alone
"""


@pytest.mark.docker
def test_a_process_whose_first_thread_has_ended_is_swept(container: Any) -> None:
    container.exec_run(["python3", "-c", HEADLESS], user="agent", detach=True)
    headless = "grep -lE '^State:.Z' $(grep -lE '^Threads:.2$' /proc/[0-9]*/status) /dev/null"
    until(lambda: run(container, headless).startswith("/proc/"))
    assert swept(container, "--uid 1000") == {"killed": 1, "left": []}
    assert not run(container, headless).startswith("/proc/")


FORKING = """
grow() { if [ $1 -gt 0 ]; then grow $(($1 - 1)) & grow $(($1 - 1)) & fi; while :; do (setsid sleep 0.05 &); done; }
grow 4
"""


@pytest.mark.docker
def test_what_forks_without_end_is_swept_in_one_go(container: Any) -> None:
    container.exec_run(["bash", "-c", FORKING], user="agent", detach=True)
    until(lambda: len([row for row in listing(container) if row["uid"] == 1000]) > 31)
    assert swept(container)["left"] == []
    assert not [row for row in listing(container) if row["uid"] == 1000]
