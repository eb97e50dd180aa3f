"""The fixtures of an item. Each may be overridden in a ``conftest.py`` beside the tasks; the docstring says when."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pytest_uniclaw.agents.base import Agent
from pytest_uniclaw.agents.registry import check_agent, load_agent
from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.budget import Budget, budget_of
from pytest_uniclaw.collection import CUSTOM, TaskItem, overriding_file
from pytest_uniclaw.desktop import image_for
from pytest_uniclaw.errors import EngineError, SettingsError, TaskUnavailable
from pytest_uniclaw.executor import Executor
from pytest_uniclaw.extensions import load_provider
from pytest_uniclaw.judge.base import Simulator, Supervisor
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.options import load_settings
from pytest_uniclaw.outcome import RECORD, TaskInfra, raise_outcome
from pytest_uniclaw.package import unavailable
from pytest_uniclaw.preflight import check_model, refuse_stranger
from pytest_uniclaw.progress import sink_of
from pytest_uniclaw.provisioning import Unprovisioned, provision
from pytest_uniclaw.report.record import record_of_attempt, skipped_record
from pytest_uniclaw.rolecheck import simulator_of, supervisor_of
from pytest_uniclaw.selection import selected_item
from pytest_uniclaw.session import RunInfo, run_info
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.spec import NO_MODEL, AttemptSpec, RunContext, digests
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import Stored, new_attempt_directory, stored_attempt, task_directory
from pytest_uniclaw.task import Service, Task

NEEDED: dict[str, tuple[str, ...]] = {
    "supervisor": ("name", "version", "assess"),
    "simulator": ("name", "version", "reply"),
    "budget": ("turn_seconds", "total_seconds", "followups", "silence_seconds"),
}
"""What an overridden fixture's value must have; protocols cannot be checked for data members."""


@pytest.fixture
def task(request: pytest.FixtureRequest) -> Task:
    """The task of the item. Override to change a loaded task for a whole folder of tasks."""
    item: TaskItem = request.node
    return item.task


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Agent:
    """The executor's adapter. Override to plug in an agent of your own without an entry point."""
    item: TaskItem = request.node
    try:
        return load_agent(item.agent_name, load_settings(item.config).agent_tables)
    except SettingsError as error:
        raise TaskInfra(str(error), pytrace=False) from None


@pytest.fixture
def services(task: Task) -> tuple[Service, ...]:
    """The services beside the executor. Override to run a task without its services or with others."""
    return task.services


@pytest.fixture
def supervisor(task: Task, pytestconfig: pytest.Config) -> Supervisor:
    """The hidden grader. Override to grade with one of your own."""
    return supervisor_of(task, load_settings(pytestconfig))


@pytest.fixture
def simulator(task: Task, pytestconfig: pytest.Config) -> Simulator:
    """The user simulator. Override to let another user write the follow-ups."""
    return simulator_of(task, load_settings(pytestconfig))


@pytest.fixture
def budget(task: Task, pytestconfig: pytest.Config) -> Budget:
    """The limits in executor seconds and follow-ups. Override to give a folder of tasks other limits."""
    return budget_of(task, load_settings(pytestconfig))


@dataclass(frozen=True)
class Parts:
    """The exchangeable parts of an attempt, checked to be what they stand for."""

    agent: Agent
    supervisor: Supervisor
    simulator: Simulator
    budget: Budget


@pytest.fixture
def uniclaw_parts(
    request: pytest.FixtureRequest, agent: Agent, supervisor: Supervisor, simulator: Simulator, budget: Budget
) -> Parts:
    """Collect the overridable parts and refuse what is none. Not meant to be overridden."""
    item: TaskItem = request.node
    parts = Parts(agent, supervisor, simulator, budget)
    try:
        check_agent(agent, origin_of(item, "agent"))
    except SettingsError as error:
        raise TaskInfra(str(error), pytrace=False) from None
    for name, needed in NEEDED.items():
        value = getattr(parts, name)
        missing = [part for part in needed if not hasattr(value, part)]
        if missing:
            given = "None" if value is None else f"a {type(value).__name__}"
            raise TaskInfra(f"{origin_of(item, name)} gives {given}, which lacks {', '.join(missing)}", pytrace=False)
    item.shown_agent = reference_of(item) or agent.name
    return parts


@pytest.fixture
def artifacts(request: pytest.FixtureRequest, task: Task, uniclaw_parts: Parts, uniclaw_run: RunInfo) -> Path:
    """The folder of the task's attempts in the run directory. Override to keep artifacts elsewhere."""
    item: TaskItem = request.node
    agent = uniclaw_parts.agent
    slug = item.model.slug if agent.needs_model else NO_MODEL
    return task_directory(uniclaw_run.directory, item.number, item.shown_agent, slug, task.category, task.task_id)


@pytest.fixture
def uniclaw_run(pytestconfig: pytest.Config) -> RunInfo:
    """What the controller prepared for this session: run id, run directory, gateway. Not meant to be overridden."""
    return run_info(pytestconfig)


@pytest.fixture
def attempt_spec(
    request: pytest.FixtureRequest, task: Task, uniclaw_parts: Parts, services: tuple[Service, ...], artifacts: Path,
    uniclaw_run: RunInfo,
) -> AttemptSpec:  # fmt: skip
    """The frozen description of this attempt. Override to change any part of it at once."""
    item: TaskItem = request.node
    settings, parts = load_settings(item.config), uniclaw_parts
    _skip_unavailable(item, task, uniclaw_run.context)
    _skip_without_desktop(item, task, parts.agent)
    model = item.model if parts.agent.needs_model else None
    _refuse_unready(item, task, parts.agent, model)
    return AttemptSpec(
        task=dataclasses.replace(task, services=services), agent=parts.agent,
        provider=load_provider(settings.sandbox), supervisor=parts.supervisor, simulator=parts.simulator,
        budget=parts.budget, run=uniclaw_run.context, number=item.number, directory=artifacts, model=model,
        gateway=uniclaw_run.gateway, reference=reference_of(item),
    )  # fmt: skip


@pytest.fixture
def uniclaw_replay(attempt_spec: AttemptSpec, pytestconfig: pytest.Config) -> Stored | None:
    """A stored attempt that stands for this one under ``--uniclaw-resume``, else None."""
    if not load_settings(pytestconfig).resume:
        return None
    return stored_attempt(attempt_spec.directory, digests(attempt_spec))


@pytest.fixture
def executor(attempt_spec: AttemptSpec, uniclaw_replay: Stored | None) -> Iterator[Executor | Unprovisioned | None]:
    """The agent in its sandbox with services and model, ready for the first turn. Override to provision otherwise."""
    if uniclaw_replay is not None:
        yield None
        return
    spec = dataclasses.replace(attempt_spec, directory=new_attempt_directory(attempt_spec.directory))
    with provision(spec) as opened:
        yield opened


@pytest.fixture
def uniclaw_attempt(
    request: pytest.FixtureRequest, attempt_spec: AttemptSpec, uniclaw_replay: Stored | None,
    executor: Executor | Unprovisioned | None,
) -> Callable[[], None]:  # fmt: skip
    """Run the attempt and raise its outcome; what every item's test function calls."""

    def run() -> None:
        item: TaskItem = request.node
        settings = load_settings(item.config)
        if uniclaw_replay is not None:
            directory, attempt = uniclaw_replay
        else:
            if executor is None:
                raise TypeError("an overridden `executor` fixture must yield an Executor")
            if isinstance(executor, Unprovisioned) and isinstance(executor.error, TaskUnavailable):
                _skip(item, str(executor.error))
            directory = executor.spec.directory
            attempt = run_attempt(executor.spec, sink_of(item.config, item.nodeid), executor)
            attempt = _keep(attempt, executor, settings)
        replayed = uniclaw_replay is not None
        record = record_of_attempt(attempt, settings.partial, directory, replayed=replayed)
        item.stash[RECORD] = record
        raise_outcome(record)

    return run


def origin_of(item: TaskItem, fixture: str) -> str:
    """Say where the value of a fixture comes from: the file that overrides it, or what is installed."""
    path = overriding_file(item, fixture)
    return f"the fixture `{fixture}` of {path}" if path else f"the installed {fixture}"


def reference_of(item: TaskItem) -> str:
    """Return how the user named an item's agent; empty for an agent that only a conftest knows."""
    return "" if item.agent_name == CUSTOM else item.agent_name


def _skip_unavailable(item: TaskItem, task: Task, context: RunContext) -> None:
    """Skip a task that this machine or this sandbox cannot run, with its name and the reason."""
    settings = load_settings(item.config)
    if reason := unavailable(task, context.privacy, context.snapshot_mode):
        _skip(item, reason)
    if load_provider(settings.sandbox).trusted_only and not task.local:
        _skip(item, f"{task.task_id}: not marked `uniclaw: {{local: true}}`, so it does not run in the local sandbox")


def _skip_without_desktop(item: TaskItem, task: Task, agent: Agent) -> None:
    """Skip a task that needs a desktop when the image that has one is not built."""
    image = image_for(agent.image, task)
    if image == agent.image:
        return
    try:
        _check_image(load_settings(item.config).sandbox, image)
    except SettingsError as error:
        if isinstance(error.__cause__, EngineError):  # the session began with an engine that answered
            raise TaskInfra(str(error), pytrace=False) from None
        _skip(item, f"{task.task_id} needs a desktop: {error}")


def _skip(item: TaskItem, reason: str) -> None:
    model = selected_item(item).model
    item.stash[RECORD] = skipped_record(item.task, item.shown_agent, item.number, reason, model=model)
    pytest.skip(reason)


def _keep(attempt: Attempt, executor: Executor | Unprovisioned, settings: Settings) -> Attempt:
    """Under ``--uniclaw-keep``, leave the container of a non-pass running and say how to enter it."""
    if not settings.keep or attempt.status is Status.PASS or attempt.tries > 1 or isinstance(executor, Unprovisioned):
        return attempt
    entry = executor.sandbox.retain()
    if not entry:
        return attempt
    texts = {"reason": f"{attempt.reason}; kept: {entry}", "problem": f"{attempt.problem}\nkept: {entry}".strip()}
    return attempt.model_copy(update=texts)


def _refuse_unready(item: TaskItem, task: Task, agent: Agent, model: ModelChoice | None) -> None:
    """End an item whose agent cannot run here. One of a conftest is not known before, any other was checked by then."""
    settings = load_settings(item.config)
    try:
        refuse_stranger(agent, settings)
        if model is not None:
            check_model(task, agent.name, model, settings)
        if item.agent_name == CUSTOM:
            _check_image(settings.sandbox, agent.image)
    except SettingsError as error:
        path = overriding_file(item, "agent")
        whose = f" of {path}" if path else ""
        raise TaskInfra(f"the agent {agent.name}{whose} cannot run: {error}", pytrace=False) from None


@cache
def _check_image(sandbox: str, image: str) -> None:
    """Ask whether an image is there, until it is. Raises SettingsError with the remedy."""
    load_provider(sandbox).check([image])
