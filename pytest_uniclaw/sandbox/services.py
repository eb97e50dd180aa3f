"""The programs that run beside an executor: installed privately, started in order, asked for their state.

A one-shot service ends, and its files are gone, before the executor starts. A background service keeps running; it is
awaited when the task says how (``ready``), and what the task wants to know of it is exported after each turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SandboxLost, TaskError
from pytest_uniclaw.extension import SAFE_NAME
from pytest_uniclaw.paths import SandboxPaths
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox
from pytest_uniclaw.store import write_bytes
from pytest_uniclaw.task import Service, Task

ONESHOT_SECONDS = 1200.0
EXPORT_SECONDS = 30.0
EXPORT_BYTES = MIB - 4096
"""A larger export is refused, not cut: a check must not read half a state, and a command's output is bounded."""
_STARTED_SECONDS = 30.0
"""How long the start of a background service without ``ready`` may take to be confirmed."""
LOG_BYTES = MIB - 4096
"""The end of a failed service's log that is kept; a command's output is bounded."""
TAIL_CHARACTERS = 2000
"""The end of a failed service's log that its error says."""
LOGS = "services"
"""Where an attempt's folder keeps the logs of services that failed."""
_DIED, _NOT_READY = 70, 71

_PRELUDE = """
folder=$1 log=$2 command=$3 user=$4 ready=$5 seconds=$6
"""
_ONESHOT = """
cd "$folder" || exit
result=0
bash -lc "set -euo pipefail
$command" > "$log" 2>&1 < /dev/null || result=$?
cd /
[ "$user" != root ] || rm -rf "$folder"
exit $result
"""
_BACKGROUND = """
cd "$folder" || exit
setsid bash -lc "set -euo pipefail
$command" >> "$log" 2>&1 < /dev/null &
pid=$!
said=''
fail() { printf %s "$said"; exit "$1"; }
started() { echo "$pid"; exit 0; }
in_session() { read -r stat < "/proc/$pid/stat" && set -- ${stat##*) } && [ "$4" = "$pid" ]; } 2> /dev/null
while :; do
    if ! kill -0 "$pid" 2> /dev/null; then wait "$pid" || fail 70; fi
    if [ -z "$ready" ]; then in_session && started; sleep 0.01; continue; fi
    said=$(timeout 10 bash -c "$ready" 2>&1 < /dev/null | tail -c 300; exit "${PIPESTATUS[0]}") && started
    [ "$SECONDS" -lt "$seconds" ] || fail 71
    sleep 0.1
done
"""
"""Prints the pid of a service that was started, or what ``ready`` said last."""
_EXPORT = """
cd "$1" 2> /dev/null || cd /
folder=$(mktemp -d) || exit
trap 'rm -rf "$folder"' EXIT
set -o pipefail
result=0
bash -lc "set -euo pipefail
$2" 2> "$folder/err" < /dev/null | head -c "$3" > "$folder/out" || result=$?
echo "$result $(stat -c %s "$folder/out")"
if [ "$result" = 0 ]; then cat "$folder/out"; else tail -c 300 "$folder/err"; fi
"""


@dataclass(frozen=True)
class Running:
    """A service that was started. ``pid`` is that of a background service's first process, in the sandbox."""

    service: Service
    pid: int | None = None

    @property
    def name(self) -> str:
        """The service's name."""
        return self.service.name


def start_services(
    sandbox: Sandbox, task: Task, environment: Mapping[str, str], directory: Path
) -> tuple[Running, ...]:
    """Install and start the task's services, in order; background services with ``ready`` are awaited.

    ``environment`` holds declared privacy values; their text is blanked out in errors and logs. Raises
    :class:`InfraError` that names the service, how it ended and the end of its log, which is kept as
    ``services/<name>.log`` in the attempt's ``directory``. Costs one put and one exec per service (a one-shot service
    that is not root's: two).
    """
    if not task.services:
        return ()
    sandbox.put([entry for service in task.services for entry in _entries(task, service, sandbox.paths)])
    running = []
    for service in task.services:
        try:
            running.append(_start(sandbox, service, environment, directory))
        except SandboxLost as error:
            raise InfraError(f"service {service.name!r}: the sandbox died while it started: {error}") from error
    return tuple(running)


def export_state(sandbox: Sandbox, services: Sequence[Running], destination: Path) -> list[str]:
    """Run every export command as its service's account; write each stdout to ``destination/<file>``.

    Returns flags ``export_failed:<service>/<file>``; such a file is absent, and ``export_errors.log`` beside
    ``destination`` says why. Raises what the sandbox raises.
    """
    flags: list[str] = []
    problems: list[str] = []
    for running in services:
        for name, command in running.service.export:
            content, problem = _export(sandbox, running.service, name, command)
            if problem:
                flags.append(f"export_failed:{running.name}/{name}")
                problems.append(f"{running.name}/{name}: {problem}\n")
            else:
                destination.mkdir(parents=True, exist_ok=True)
                (destination / name).write_bytes(content)
    if problems:
        destination.mkdir(parents=True, exist_ok=True)
        destination.with_name("export_errors.log").write_text("".join(problems), encoding="utf-8")
    return flags


def _entries(task: Task, service: Service, paths: SandboxPaths) -> tuple[Entry, ...]:
    """The service's private folder and its empty log, both its account's own."""
    if not SAFE_NAME.fullmatch(service.name):
        raise TaskError(task.path, f"service name {service.name!r} is not safe as a path part", field="services")
    root = task.folder / "services"
    folder = root / service.path
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        raise TaskError(task.path, f"service {service.name!r} has no folder {folder}", field="services")
    target, user = paths.service(service.name), service.user
    # Files keep everyday modes, so that what a service copies out can be read; the folder itself shuts others out.
    return (
        Entry(target, source=folder, user=user),
        Entry(target, mode=0o700, user=user),
        Entry(_log(paths, service), content=b"", user=user),
    )


def _start(sandbox: Sandbox, service: Service, environment: Mapping[str, str], directory: Path) -> Running:
    """Start one service as its account, and wait for its end or its readiness."""
    start = _ONESHOT if service.oneshot else _BACKGROUND
    seconds = ONESHOT_SECONDS if service.oneshot else _STARTED_SECONDS + (service.ready_seconds if service.ready else 0)
    variables = {**environment, **_variables(sandbox.paths, service)}
    completed = _run(sandbox, service, start, seconds, variables)
    if completed.ending is not Ending.EXITED or completed.exit_code != 0:
        log = _keep_log(sandbox, service, Redactor(environment.values()), directory)
        raise _failure(service, completed, log, Redactor(environment.values()))
    if service.oneshot:
        if service.user != "root":
            sandbox.run(["rm", "-rf", "--", sandbox.paths.service(service.name)])
        return Running(service)
    pid = completed.output.strip()
    return Running(service, int(pid) if pid.isdigit() else None)


def _run(sandbox: Sandbox, service: Service, script: str, seconds: float, variables: Mapping[str, str]) -> Completed:
    folder, log = sandbox.paths.service(service.name), _log(sandbox.paths, service)
    arguments = [folder, log, service.start, service.user, service.ready or "", str(service.ready_seconds)]
    command = ["bash", "-c", _PRELUDE + script, "service", *arguments]
    return sandbox.run(command, user=service.user, seconds=seconds, environment=variables)


def _variables(paths: SandboxPaths, service: Service) -> dict[str, str]:
    folder = paths.service(service.name)
    return {
        "UNICLAW_WORKSPACE": paths.workspace, "UNICLAW_RESULTS": paths.results, "UNICLAW_SOURCES": paths.sources,
        "UNICLAW_SERVICE_DIR": folder, "HOME": "/root" if service.user == "root" else folder,
    }  # fmt: skip


def _log(paths: SandboxPaths, service: Service) -> str:
    return f"{paths.logs}/{service.name}.log"


def _keep_log(sandbox: Sandbox, service: Service, redactor: Redactor, directory: Path) -> str:
    """Store the end of a failed service's log without secrets, and return it; a disk that refuses it loses the file."""
    tail = ["tail", "-c", str(LOG_BYTES), _log(sandbox.paths, service)]
    content = redactor.data(sandbox.run(tail, user=service.user).output)
    if content:
        with suppress(OSError):
            write_bytes(directory / LOGS / f"{service.name}.log", content)
    return content.decode("utf-8", "replace").strip()


def _failure(service: Service, completed: Completed, log: str, redactor: Redactor) -> InfraError:
    """Say which service failed, how, and what its log ends with."""
    if completed.ending is not Ending.EXITED:
        how = f"did not end within {completed.seconds:.0f} s"
    elif completed.exit_code == _NOT_READY and not service.oneshot:
        how = f"was not ready after {service.ready_seconds} s (`{service.ready}`)"
    elif completed.exit_code == _DIED and not service.oneshot:
        how = f"ended at once (`{service.start}`)"
    else:
        how = f"exited with {completed.exit_code} (`{service.start}`)"
    if said := " ".join(redactor.text(completed.output.decode("utf-8", "replace")).split()):
        how = f"{how}, which said: {said}"
    if not log:
        return InfraError(f"service {service.name!r} {how}; it wrote no log")
    return InfraError(f"service {service.name!r} {how}; its log, {LOGS}/{service.name}.log, ends:\n{_end_of(log)}")


def _end_of(log: str) -> str:
    """Return the last whole lines, or what one line too long ends with."""
    tail = log[-TAIL_CHARACTERS:]
    return tail.partition("\n")[2] or tail if len(log) > TAIL_CHARACTERS else log


def _export(sandbox: Sandbox, service: Service, name: str, command: str) -> tuple[bytes, str]:
    """Return the export's stdout, or why there is none."""
    if not SAFE_NAME.fullmatch(name):
        return b"", f"{name!r} is not safe as a file name"
    folder = sandbox.paths.service(service.name)
    completed = sandbox.run(
        ["bash", "-c", _EXPORT, "export", folder, command, str(EXPORT_BYTES + 1)], user=service.user,
        seconds=EXPORT_SECONDS, environment=_variables(sandbox.paths, service),
    )  # fmt: skip
    if completed.ending is not Ending.EXITED:
        return b"", f"did not end within {EXPORT_SECONDS:.0f} s"
    head, _, content = completed.output.partition(b"\n")
    numbers = head.split()
    if completed.exit_code != 0 or len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return b"", f"could not be run: {completed.output[-300:].decode('utf-8', 'replace').strip()}"
    result, size = int(numbers[0]), int(numbers[1])
    if size > EXPORT_BYTES:
        return b"", f"is larger than {EXPORT_BYTES} bytes"
    if result:
        return b"", f"exited with {result}: {content.decode('utf-8', 'replace').strip()}"
    if len(content) != size:
        return b"", f"gave {size} bytes, of which {len(content)} came through"
    return content, ""
