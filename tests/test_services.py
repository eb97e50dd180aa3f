"""Services: started in order, awaited, exported; every failure names the service and shows the end of its log."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import pytest
from support.host_sandbox import HostSandbox
from task_package import build

from pytest_uniclaw.errors import InfraError, TaskError
from pytest_uniclaw.sandbox import services as module
from pytest_uniclaw.sandbox.services import export_state, start_services
from pytest_uniclaw.task import Service, Task, load_task

pytestmark = pytest.mark.processes


def make_task(tmp_path: Path, *services: Service) -> Task:
    package = build(tmp_path / "repository")
    for service in services:
        package.write(f"services/{service.path}/data.txt", "seed\n")
    return dataclasses.replace(load_task(package.yaml), services=services)


def service(start: str, **fields: object) -> Service:
    values = {"name": "tracker", "path": "tracker", "start": start, "oneshot": False, **fields}
    return Service(**values)  # type: ignore[arg-type]


def end(pid: int | None) -> None:
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)


def test_a_oneshot_runs_in_its_folder_and_the_folder_goes(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "sandbox")
    task = make_task(tmp_path, service('cp data.txt "$UNICLAW_WORKSPACE/seed"; echo "$TOKEN"', oneshot=True))
    (running,) = start_services(sandbox, task, {"TOKEN": "abc"}, tmp_path)
    assert running.name == "tracker"
    assert running.pid is None
    assert (Path(sandbox.paths.workspace) / "seed").read_text() == "seed\n"
    assert not Path(sandbox.paths.service("tracker")).exists()
    assert (Path(sandbox.paths.logs) / "tracker.log").read_text() == "abc\n"
    assert sandbox.environments[0]["HOME"] == "/root"
    assert [(entry.mode, entry.source is None) for entry in sandbox.entries[:2]] == [(0o644, False), (0o700, True)]


def test_a_service_of_its_own_account_owns_its_folder_and_log(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "sandbox")
    task = make_task(tmp_path, service("true", oneshot=True, user="service"))
    start_services(sandbox, task, {}, tmp_path)
    assert [entry.user for entry in sandbox.entries] == ["service", "service", "service"]
    assert sandbox.users == ["service", "root"]
    assert not Path(sandbox.paths.service("tracker")).exists()


def test_a_failing_oneshot_is_infra_with_its_code_and_log_but_no_secret(tmp_path: Path) -> None:
    task = make_task(tmp_path, service("echo key $TOKEN; false; echo never", oneshot=True))
    with pytest.raises(InfraError) as caught:
        start_services(HostSandbox(tmp_path / "sandbox"), task, {"TOKEN": "s3cret-value"}, tmp_path)
    command = "echo key $TOKEN; false; echo never"
    said = f"service 'tracker' exited with 1 (`{command}`); its log, services/tracker.log, ends:\nkey [redacted]"
    assert str(caught.value) == said
    assert (tmp_path / "services" / "tracker.log").read_text() == "key [redacted]\n"


def test_a_long_log_is_told_by_its_last_whole_lines(tmp_path: Path) -> None:
    task = make_task(tmp_path, service("seq 100000 999999; false", oneshot=True))
    with pytest.raises(InfraError) as caught:
        start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)
    lines = str(caught.value).splitlines()
    assert (lines[1], lines[-1], len(lines)) == ("999715", "999999", 286)
    kept = (tmp_path / "services" / "tracker.log").read_bytes()
    assert (len(kept), kept.endswith(b"999999\n")) == (module.LOG_BYTES, True)


def test_a_service_that_says_nothing_leaves_no_log(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"exited with 3 \(`exit 3`\); it wrote no log$"):
        start_services(
            HostSandbox(tmp_path / "sandbox"), make_task(tmp_path, service("exit 3", oneshot=True)), {}, tmp_path
        )
    assert not (tmp_path / "services").exists()


def test_a_oneshot_that_hangs_is_infra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONESHOT_SECONDS", 0.5)
    task = make_task(tmp_path, service("echo waiting; sleep 60", oneshot=True))
    with pytest.raises(InfraError, match=r"did not end within 0 s|did not end within 1 s") as caught:
        start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)
    assert "waiting" in str(caught.value)


def test_a_background_service_is_awaited(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "sandbox")
    start = "sleep 0.4; echo up > state; exec sleep 60"
    task = make_task(tmp_path, service(start, ready="grep -q up state", ready_seconds=20))
    (running,) = start_services(sandbox, task, {}, tmp_path)
    try:
        assert (Path(sandbox.paths.service("tracker")) / "state").read_text() == "up\n"
    finally:
        end(running.pid)


def test_a_service_that_never_becomes_ready_is_infra(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "sandbox")
    start = "echo starting; echo $$ > pid; exec sleep 60"
    ready = "until [ -s pid ]; do sleep 0.05; done; echo refused; false"
    task = make_task(tmp_path, service(start, ready=ready, ready_seconds=1))
    with pytest.raises(InfraError, match=r"'tracker' was not ready after 1 s \(`until .* false`\)") as caught:
        start_services(sandbox, task, {}, tmp_path)
    end(int((Path(sandbox.paths.service("tracker")) / "pid").read_text()))
    assert str(caught.value).endswith("which said: refused; its log, services/tracker.log, ends:\nstarting")
    assert (tmp_path / "services" / "tracker.log").read_text() == "starting\n"


def test_a_service_that_dies_is_infra_at_once(tmp_path: Path) -> None:
    task = make_task(tmp_path, service("echo no such port; exit 3", ready="false", ready_seconds=600))
    with pytest.raises(InfraError, match="ended at once") as caught:
        start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)
    assert str(caught.value).splitlines()[1:] == ["no such port"]
    assert (tmp_path / "services" / "tracker.log").read_text() == "no such port\n"


def test_a_service_that_daemonises_may_end_with_0(tmp_path: Path) -> None:
    start = "(sleep 0.3; echo up > state) > /dev/null 2>&1 & exit 0"
    task = make_task(tmp_path, service(start, ready="test -e state", ready_seconds=20))
    assert start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)[0].pid


def test_without_readiness_a_service_only_has_to_start(tmp_path: Path) -> None:
    task = make_task(tmp_path, service("exec sleep 60"))
    (running,) = start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)
    os.kill(running.pid or 0, 0)
    end(running.pid)


def test_a_folder_outside_the_package_is_refused(tmp_path: Path) -> None:
    package = build(tmp_path / "repository", files={"services/tracker/x": ""})
    task = dataclasses.replace(load_task(package.yaml), services=(service("true", path="../references"),))
    with pytest.raises(TaskError, match="has no folder"):
        start_services(HostSandbox(tmp_path / "sandbox"), task, {}, tmp_path)


def test_state_is_exported_byte_for_byte_and_a_failure_is_a_flag(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "sandbox")
    exports = (
        ("good.bin", r"printf 'a\0b\n\n'; echo noise >&2"),
        ("bad.json", "echo half; echo broken >&2; exit 4"),
        ("large.txt", "head -c 3000000 /dev/zero"),
        ("cwd.txt", 'cat data.txt; echo "$UNICLAW_SERVICE_DIR"'),
    )
    task = make_task(tmp_path, service("exec sleep 60", user="service", export=exports))
    running = start_services(sandbox, task, {}, tmp_path)
    end(running[0].pid)
    flags = export_state(sandbox, running, tmp_path / "evidence" / "state")
    assert flags == ["export_failed:tracker/bad.json", "export_failed:tracker/large.txt"]
    state = tmp_path / "evidence" / "state"
    assert sorted(path.name for path in state.iterdir()) == ["cwd.txt", "good.bin"]
    assert (state / "good.bin").read_bytes() == b"a\0b\n\n"
    assert (state / "cwd.txt").read_text() == f"seed\n{sandbox.paths.service('tracker')}\n"
    errors = (tmp_path / "evidence" / "export_errors.log").read_text()
    assert "bad.json: exited with 4: broken" in errors
    assert "larger than" in errors


def test_an_export_that_hangs_is_a_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPORT_SECONDS", 0.3)
    sandbox = HostSandbox(tmp_path / "sandbox")
    task = make_task(tmp_path, service("true", oneshot=True, export=(("a.json", "sleep 60"),)))
    running = start_services(sandbox, task, {}, tmp_path)
    assert export_state(sandbox, running, tmp_path / "state") == ["export_failed:tracker/a.json"]
