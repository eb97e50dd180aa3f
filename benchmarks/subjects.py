"""What the benchmark measures: the two floors, and one trivial task run by the harness.

A floor does by hand, with the same SDK, what no harness can leave out. The task is made so that the work in it costs
nothing: its oracle and its scripted model write one line, its one check reads it.
"""

from __future__ import annotations

import io
import json
import secrets
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import APIClient

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.extensions import load_provider, load_simulator, load_supervisor
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.sandbox.images import image_tag
from pytest_uniclaw.spec import AttemptSpec, RunContext
from pytest_uniclaw.status import Status
from pytest_uniclaw.task import load_task

CATEGORY = "101_skill_usage"
YAML = """task_id: {name}
category: {category}
agent_sys: oracle
task: Write done.txt into the results, with the word done.
success_threshold: 0.9
references: [references/eval_rule.md]
uniclaw: {{}}
"""
RULE = "# Rule\n\n## 5. Checkpoints\n\n- **1.00 — C1 Done.** done.txt says done.\n"
CHECK = """import pytest


@pytest.mark.checkpoint("C1")
def check_done(evidence):
    assert evidence.text("done.txt") == "done\\n"
"""
DONE = "echo done > /tmp_workspace/results/done.txt"
TURN = [{"shell": DONE}, {"say": "done.txt is written."}]
IDLE = [{"say": "Which word shall it be?"}]
EMPTY_TEST = b"def test_nothing():\n    pass\n"


def make_suite(root: Path, count: int) -> list[Path]:
    """Write ``count`` trivial tasks below ``root`` and return their files; the script of the first lasts two turns."""
    files = []
    for number in range(count):
        name = f"task_101_{number:02d}_trivial"
        turns = [IDLE, TURN] if number == 0 else [TURN]
        package = root / "injection" / CATEGORY / name
        contents = {
            root / "suites" / CATEGORY / f"{name}.yaml": YAML.format(name=name, category=CATEGORY),
            package / "references" / "eval_rule.md": RULE,
            package / "references" / "checks" / "check_done.py": CHECK,
            package / "oracle" / "solve.sh": DONE + "\n",
            package / "script" / "model.yaml": json.dumps({"turns": turns}),
        }
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        files.append(root / "suites" / CATEGORY / f"{name}.yaml")
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n", encoding="utf-8")
    return files


def one_container() -> None:
    """Floor 1: one container with a file in, one command, a file out, removed."""
    with client() as api:
        use_container(api, image_tag("runtime"), ["true"])


def two_containers() -> None:
    """Floor 2: the same twice, the second time in the grader's image with an empty pytest as the command."""
    with client() as api:
        use_container(api, image_tag("runtime"), ["true"])
        use_container(api, image_tag("grader"), ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "/tmp/in"])


def use_container(api: APIClient, image: str, command: list[str]) -> None:
    """Create, start, put, exec, get and remove one container without a network."""
    host = api.create_host_config(network_mode="none", mem_limit="1g", pids_limit=256)
    name = f"uniclaw-floor-{secrets.token_hex(6)}"
    labels = {"uniclaw": "1", "uniclaw.run": "floor", "uniclaw.deadline": str(int(time.time()) + 600)}
    api.create_container(image, name=name, entrypoint=["sleep"], command=["600"], host_config=host, labels=labels)
    try:
        api.start(name)
        api.put_archive(name, "/tmp", archive("in/test_nothing.py", EMPTY_TEST))
        execution = api.exec_create(name, command)["Id"]
        api.exec_start(execution)
        if api.exec_inspect(execution)["ExitCode"] != 0:
            raise RuntimeError(f"{command} failed in {image}")
        stream, _ = api.get_archive(name, "/tmp/in")
        for _ in stream:
            pass
    finally:
        api.remove_container(name, force=True, v=True)


@contextmanager
def client() -> Iterator[Any]:
    """Yield a client of its own, as every attempt has."""
    with closing(APIClient(version="auto")) as api:
        yield api


def archive(name: str, content: bytes) -> bytes:
    """Return a tar that holds one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@dataclass(frozen=True)
class Harness:
    """Runs the trivial task through :func:`run_attempt`, without pytest."""

    root: Path
    gateway: GatewayAddress | None = None

    def oracle(self, file: Path) -> Attempt:
        """One oracle attempt with checks."""
        return self.attempt(file, "oracle")

    def nanobot(self, file: Path) -> Attempt:
        """One attempt of real nanobot on the task's script: two turns for the first task, one for the others."""
        return self.attempt(file, "nanobot")

    def attempt(self, file: Path, agent: str) -> Attempt:
        """Run one attempt that must pass."""
        adapter = load_agent(agent)
        spec = AttemptSpec(
            task=load_task(file), agent=adapter, provider=load_provider("docker"),
            supervisor=load_supervisor("checks"), simulator=load_simulator("template"), budget=Budget(),
            run=RunContext("benchmark", self.root / "runs"),
            directory=self.root / "runs" / "a1" / agent / "m" / CATEGORY / file.stem / f"p1-{secrets.token_hex(3)}",
            model=ModelChoice("script", "scripted") if adapter.needs_model else None,
            gateway=self.gateway if adapter.needs_model else None,
        )  # fmt: skip
        attempt = run_attempt(spec)
        if attempt.status is not Status.PASS:
            raise RuntimeError(f"{file.stem} by {agent}: {attempt.reason}")
        return attempt
