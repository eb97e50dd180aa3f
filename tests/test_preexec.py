"""pre_exec: package code on the host, with a minimal environment, a deadline and one run at a time."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from task_package import build

from pytest_uniclaw.errors import PreExecError
from pytest_uniclaw.preexec import run_pre_exec
from pytest_uniclaw.task import Task, load_task

pytestmark = pytest.mark.processes

BASE = {"PATH": os.defpath, "LANG": "C.UTF-8", "AWS_SECRET_ACCESS_KEY": "host"}


def make_task(tmp_path: Path, script: str, **fields: object) -> Task:
    package = build(tmp_path / "repository", files={"ops/populate.py": script})
    task = load_task(package.yaml)
    return dataclasses.replace(task, pre_exec=("ops/populate.py",), **fields)  # type: ignore[arg-type]


def run(task: Task, tmp_path: Path, deadline: float = 30.0, privacy: dict[str, str] | None = None) -> str:
    log = tmp_path / "logs" / "pre_exec.log"
    run_pre_exec(
        task, privacy=privacy or {}, environment_base=BASE, log=log, locks=tmp_path / "locks", deadline=deadline
    )
    return log.read_text()


def gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_the_environment_is_minimal_and_declared(tmp_path: Path) -> None:
    script = "import os; open('seen','w').write('\\n'.join(f'{k}={v}' for k, v in sorted(os.environ.items())))"
    task = make_task(tmp_path, script)
    run(task, tmp_path, privacy={"GITHUB_TOKEN": "ghp"})
    seen = dict(line.split("=", 1) for line in (task.folder / "seen").read_text().splitlines())
    assert seen.pop("HOME") == seen.pop("TMPDIR")
    assert seen.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"
    assert seen == {
        "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "GITHUB_TOKEN": "ghp",
        "UNICLAW_TASK_ID": task.task_id, "UNICLAW_TASK_FOLDER": str(task.folder),
        "CLAWBENCH_ROOT": str(tmp_path / "repository"), "CLAWBENCH_TASK_ID": task.task_id,
        "CLAWBENCH_TASK_INJECTION_ROOT": str(task.folder),
    }  # fmt: skip


def test_a_failure_shows_the_end_of_the_output_without_secrets(tmp_path: Path) -> None:
    task = make_task(tmp_path, "import os, sys; print('token', os.environ['KEY']); sys.exit('no account')")
    with pytest.raises(PreExecError, match=r"pre_exec ops/populate.py exited with 1") as caught:
        run(task, tmp_path, privacy={"KEY": "sk-very-secret"})
    assert "no account" in str(caught.value)
    log = (tmp_path / "logs" / "pre_exec.log").read_text()
    assert "token [redacted]" in log
    assert "very-secret" not in log + str(caught.value)


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    script = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
child.wait()
"""
    task = make_task(tmp_path, script)
    with pytest.raises(PreExecError, match="did not end within 2 s"):
        run(task, tmp_path, deadline=2.0)
    assert gone(int((task.folder / "child").read_text()))


def test_nothing_to_run_makes_nothing(tmp_path: Path) -> None:
    task = dataclasses.replace(make_task(tmp_path, ""), pre_exec=())
    run_pre_exec(task, privacy={}, environment_base={}, log=tmp_path / "logs" / "x", locks=tmp_path / "locks")
    assert not (tmp_path / "logs").exists()


OVERLAP = """
import os, pathlib, time
mark = pathlib.Path("running")
try:
    mark.touch(exist_ok=False)
except FileExistsError:
    raise SystemExit("two at a time")
time.sleep(0.3)
mark.unlink()
"""


def test_one_task_is_prepared_by_one_worker_at_a_time(tmp_path: Path) -> None:
    task = make_task(tmp_path, OVERLAP)
    errors: list[PreExecError] = []

    def worker(number: int) -> None:
        try:
            run(task, tmp_path / str(number))
        except PreExecError as error:
            errors.append(error)

    for number in (0, 1):  # both workers share one folder of locks
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "locks").symlink_to(tmp_path / "locks")
    (tmp_path / "locks").mkdir()
    threads = [threading.Thread(target=worker, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []


def test_the_script_dies_with_its_owner(tmp_path: Path) -> None:
    task = make_task(tmp_path, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)")
    code = f"""
import dataclasses
from pathlib import Path
from pytest_uniclaw.preexec import run_pre_exec
from pytest_uniclaw.task import load_task
task = dataclasses.replace(load_task(Path({str(task.path)!r})), pre_exec=("ops/populate.py",))
folder = Path({str(tmp_path)!r})
run_pre_exec(task, privacy={{}}, environment_base={BASE!r}, log=folder / "log", locks=folder)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent.parent)
    pid_file, end = task.folder / "pid", time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    owner.send_signal(signal.SIGKILL)
    owner.wait(10)
    assert gone(int(pid_file.read_text()))
