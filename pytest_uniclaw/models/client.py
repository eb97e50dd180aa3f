"""The harness's way to the gateway: start the process, and speak to its admin socket with the standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from pytest_uniclaw.errors import InfraError, SettingsError, TaskError, UniclawError
from pytest_uniclaw.models.grants import (
    Activity,
    Call,
    Grant,
    GrantRequest,
    LaneReport,
    Provider,
    Role,
    Spend,
    Tuning,
)

_PATH_LIMIT = 100
"""Bytes; the kernel takes 108 for a socket's path, with its end."""
_ADMIN_SECONDS = 30.0
_STDERR_TAIL = 4000


@dataclass(frozen=True)
class GatewayAddress:
    """Where a gateway listens; travels to workers. The folder of ``agent_socket`` holds nothing else.

    ``relay`` names the engine's volume in which the agents' socket is where that folder cannot be mounted.
    """

    agent_socket: Path
    admin_socket: Path
    relay: str = ""

    @property
    def relay_ended(self) -> Path:
        """The file that exists once the relay has ended by itself; executors see no file of its folder."""
        return self.admin_socket.with_name("relay.ended")

    def lost(self) -> str:
        """Say in words why no model can be reached through here any more; empty while one may be."""
        if self.relay and self.relay_ended.exists():
            return "the relay to the model gateway has ended"
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self.admin_socket))
            except BlockingIOError:
                return ""
            except OSError as error:
                return f"the model gateway has ended ({error.strerror})"
        return ""


class Gateway:
    """A client of a running gateway. Every method raises InfraError when it does not answer."""

    def __init__(self, address: GatewayAddress) -> None:
        self.address = address

    def grant(self, request: GrantRequest) -> Grant:
        """Get a virtual key.

        Raises SettingsError (provider, script or the price for a money budget is missing) or TaskError (a fault in the
        script).
        """
        paths = {name: getattr(request, name) for name in ("log", "script", "cassette")}
        absolute = {name: path and path.absolute() for name, path in paths.items()}
        body = request.model_copy(update=absolute).model_dump_json()
        return Grant.model_validate(self._ask("POST", "/grants", body=body))

    def revoke(self, grant: Grant) -> None:
        """End a grant; its calls in flight are cancelled and recorded before this returns. May be repeated."""
        self._ask("DELETE", f"/grants/{quote(grant.id)}")

    def calls(self, attempt: str, role: Role | None = None) -> list[Call]:
        """The calls of an attempt that have ended, in that order."""
        rows = self._ask("GET", "/calls", _query(attempt, role))
        return [Call.model_validate(row) for row in rows]

    def activity(self, attempt: str, role: Role | None = None) -> Activity:
        """Signs of life of an attempt's model calls."""
        return Activity.model_validate(self._ask("GET", "/activity", _query(attempt, role)))

    def replays(self, attempt: str) -> list[LaneReport]:
        """What became of the cassettes that the grants of an attempt were answered from."""
        return [LaneReport.model_validate(report) for report in self._ask("GET", "/replay", _query(attempt, None))]

    def spend(self) -> Spend:
        """The session's money so far, and whether its cap has stopped it."""
        return Spend.model_validate(self._ask("GET", "/spend"))

    def _ask(self, method: str, path: str, query: str = "", body: str | None = None) -> Any:
        connection = _UnixConnection(self.address.admin_socket)
        try:
            connection.request(method, path + query, body=body)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise InfraError(f"the model gateway at {self.address.admin_socket} does not answer: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise _error(answer)
        return answer


class GatewayProcess:
    """A gateway that this process started; ends with it. A context manager."""

    def __init__(
        self, address: GatewayAddress, directory: Path, process: subprocess.Popen[bytes], temporary: Path
    ) -> None:
        self.address = address
        self.directory = directory
        self.pid = process.pid
        self._process = process
        self._temporary = temporary

    def close(self) -> None:
        """End the gateway (stdin, then SIGTERM, then SIGKILL; 5 s at most) and remove its sockets; idempotent."""
        _end(self._process)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_gateway(
    directory: Path, providers: Sequence[Provider] = (), *, tuning: Tuning | None = None, deadline: float = 60.0,
    scratch: str = "uniclaw-", max_cost_usd: float | None = None,
) -> GatewayProcess:  # fmt: skip
    """Start a gateway that writes ``ledger.jsonl`` and ``gateway.log`` into ``directory``.

    The keys go to the child through its stdin only. ``scratch`` begins the name of the temporary folder that holds the
    sockets, so that whoever outlives a killed owner can find it. ``max_cost_usd`` caps the session's money. Raises
    InfraError, with what the child wrote to stderr, when it is not ready within ``deadline`` seconds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    temporary = _short_folder(scratch)
    address = GatewayAddress(temporary / "agent" / "agent.sock", temporary / "admin" / "admin.sock")
    for folder, mode in ((address.agent_socket.parent, 0o755), (address.admin_socket.parent, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    config = {
        "directory": str(directory.absolute()),
        "agent_socket": str(address.agent_socket),
        "admin_socket": str(address.admin_socket),
        "providers": {provider.name: provider.model_dump(exclude={"name"}) for provider in providers},
        "tuning": (tuning or Tuning()).model_dump(),
        "max_cost_usd": max_cost_usd,
        "temporary": str(temporary),
    }
    log = directory / "gateway.log"
    process = _spawn(log)
    try:
        _hand_over(process, config)
        _wait_until_ready(process, log, deadline)
    except BaseException:
        _end(process, patience=0.0)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return GatewayProcess(address, directory, process, temporary)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("gateway", timeout=_ADMIN_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ADMIN_SECONDS)
        self.sock.connect(str(self._path))


def _spawn(log: Path) -> subprocess.Popen[bytes]:
    # Run from the folder that holds this package, so that the child imports the same code as its parent.
    package = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest_uniclaw.models"]
    with log.open("ab") as stderr:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=package)


def _hand_over(process: subprocess.Popen[bytes], config: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return  # the child has ended; waiting for its ready line tells why


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    assert process.stdout is not None
    end, line = time.monotonic() + deadline, b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise InfraError(f"the model gateway was not ready after {deadline:g} s\n{_tail(log)}")
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            raise InfraError(f"the model gateway ended while starting, status {process.wait(5)}\n{_tail(log)}")
        line += data


def _end(process: subprocess.Popen[bytes], *, patience: float = 2.0) -> None:
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    for stop in (process.terminate, process.kill):
        try:
            process.wait(patience)
            break
        except subprocess.TimeoutExpired:
            stop()
    process.wait(5)
    if process.stdout is not None:
        process.stdout.close()


def _short_folder(prefix: str) -> Path:
    """A new private folder whose socket paths fit the kernel's limit. Raises SettingsError."""
    for base in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        if len(os.fsencode(folder / "agent" / "agent.sock")) < _PATH_LIMIT:
            return folder
        folder.rmdir()
    raise SettingsError("no temporary folder has a path short enough for a socket\n  fix: set TMPDIR to a short path")


def _tail(log: Path) -> str:
    text = log.read_bytes()[-_STDERR_TAIL:].decode("utf-8", "replace").strip()
    return f"its stderr ({log}):\n{text}" if text else f"it wrote nothing to stderr ({log})"


def _query(attempt: str, role: Role | None) -> str:
    return "?" + urlencode({"attempt": attempt} | ({"role": role} if role else {}))


def _error(answer: Any) -> UniclawError:
    problem = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(problem, dict):
        return InfraError(f"the model gateway refused a request: {answer}")
    message = str(problem.get("message"))
    if problem.get("kind") == "task":
        where = {name: problem[name] for name in ("line", "field", "remedy")}
        return TaskError(Path(problem["path"]), message, **where)
    return SettingsError(message) if problem.get("kind") == "settings" else InfraError(message)
