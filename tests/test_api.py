"""One attempt without pytest: a spec made by hand from public pieces, run by ``run_attempt``.

This is the way for an engine of your own, a script or a notebook::

    from pathlib import Path

    from pytest_uniclaw.agents.registry import load_agent
    from pytest_uniclaw.budget import Budget
    from pytest_uniclaw.extensions import load_provider, load_simulator, load_supervisor
    from pytest_uniclaw.loop import run_attempt
    from pytest_uniclaw.modelchoice import parse_model
    from pytest_uniclaw.models.client import start_gateway
    from pytest_uniclaw.spec import AttemptSpec, RunContext
    from pytest_uniclaw.store import new_attempt_directory, new_run, open_run, task_directory
    from pytest_uniclaw.task import load_task

    run = new_run()
    directory = open_run(Path("runs"), run)
    task = load_task(Path("suites/101_skill_usage/task_101_01_invoice_house_numbering.yaml"))
    agent, model = load_agent("nanobot"), parse_model("script")
    with start_gateway(directory / "models") as gateway:
        attempt = run_attempt(AttemptSpec(
            task=task, agent=agent, provider=load_provider("docker"), supervisor=load_supervisor("checks"),
            simulator=load_simulator("template"), budget=Budget(followups=task.followups),
            run=RunContext(run, directory), model=model, gateway=gateway.address,
            directory=new_attempt_directory(
                task_directory(directory, 1, agent.name, model.slug, task.category, task.task_id)
            ),
        ))
    print(attempt.status, attempt.score, attempt.reason)

An agent that needs no model (``oracle``, ``nop``) takes ``model=None, gateway=None`` and no gateway. A real model takes
``parse_model("openai/gpt-5.4")`` and ``start_gateway(folder, [Provider(name="openai", base_url=…, api_key=…)])``. The
spec is frozen and can be pickled; the process that runs it needs the engine and the gateway's socket. Containers are
removed when ``run_attempt`` returns; for a process that may be killed, start
``pytest_uniclaw.sandbox.reaper.start_reaper(run)`` first and close it last.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.packages import DONE, Suite

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.extensions import load_provider, load_simulator, load_supervisor
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models.client import GatewayAddress, start_gateway
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.spec import AttemptSpec, RunContext, digests
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import load_attempt, new_attempt_directory, new_run, open_run, task_directory
from pytest_uniclaw.task import load_task

SCRIPT = [[{"say": "Which word?"}], [{"shell": DONE}, {"say": "done.txt says done."}]]


def spec_of(
    suite: Suite, agent_name: str, gateway: GatewayAddress | None = None, privacy: PrivacyValues | None = None
) -> AttemptSpec:
    """The spec of the suite's task ``hand``, in a run of its own."""
    run = new_run()
    directory = open_run(suite.root / "runs", run)
    task, agent = load_task(suite.yaml("hand")), load_agent(agent_name)
    model = parse_model("script") if agent.needs_model else None
    slug = model.slug if model else "no-model"
    return AttemptSpec(
        task=task, agent=agent, provider=load_provider("docker"), supervisor=load_supervisor("checks"),
        simulator=load_simulator("template"), budget=Budget(turn_seconds=60, total_seconds=120, followups=1),
        run=RunContext(run, directory, privacy=privacy or PrivacyValues()), model=model, gateway=gateway,
        directory=new_attempt_directory(task_directory(directory, 1, agent.name, slug, task.category, task.task_id)),
    )  # fmt: skip


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A project with one task, ``hand``."""
    made = Suite.make(tmp_path / "project")
    made.add("hand", script=SCRIPT)
    return made


@pytest.mark.parametrize("agent", ["oracle", "nop", "nanobot"])
def test_a_spec_is_the_same_after_pickling(suite: Suite, tmp_path: Path, agent: str) -> None:
    address = GatewayAddress(tmp_path / "agent.sock", tmp_path / "admin.sock")
    spec = spec_of(suite, agent, address, PrivacyValues((("API_KEY", "s3cret-value"),), "a test"))
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert again.attempt_id == spec.attempt_id
    assert again.run.privacy.get("API_KEY") == "s3cret-value"
    assert "s3cret-value" not in repr(again)


def test_the_loop_needs_no_pytest() -> None:
    code = "import sys, pytest_uniclaw.loop; print('pytest' in sys.modules, 'docker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.docker
def test_one_oracle_attempt(suite: Suite) -> None:
    spec = spec_of(suite, "oracle")
    attempt = run_attempt(spec)
    assert (attempt.status, attempt.score, len(attempt.turns)) == (Status.PASS, 1.0, 1)
    assert attempt.digests == digests(spec)
    assert digests(replace(spec, task=replace(spec.task, threshold=0.5))) != attempt.digests, "as a conftest.py may do"
    assert load_attempt(spec.directory) == attempt
    assert (spec.directory / "result" / "done.txt").read_text() == "done\n"


@pytest.mark.docker
def test_one_attempt_of_nanobot_with_a_follow_up(suite: Suite) -> None:
    events: list[str] = []
    with start_gateway(suite.root / "models") as gateway:
        spec = spec_of(suite, "nanobot", gateway.address)
        attempt = run_attempt(spec, lambda event: events.append(event["what"]))
    assert (attempt.status, attempt.score) == (Status.PASS, 1.0), attempt.reason
    first, second = attempt.turns
    assert first.verdict is not None
    assert first.verdict.score == 0.0
    assert first.handoff is not None
    assert set(type(first.handoff).model_fields) == {"verdict", "attempt_state", "recoverable", "score"}
    assert first.follow_up is not None
    assert second.message == first.follow_up.message
    assert events == ["turn", "judging", "verdict"] * 2
    assert [usage.calls for usage in attempt.usage] == [3]


@pytest.mark.docker
def test_another_process_runs_a_pickled_spec(suite: Suite, tmp_path: Path) -> None:
    """What an engine does: it gets bytes, opens the executor itself and hands back the record."""
    pickled = tmp_path / "spec"
    pickled.write_bytes(pickle.dumps(spec_of(suite, "oracle")))
    code = (
        "import pickle, sys, pathlib; from pytest_uniclaw.loop import run_attempt; "
        "spec = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()); "
        "print(run_attempt(spec).model_dump_json(include={'status', 'score'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, pickled], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"status": "pass", "score": 1.0}
