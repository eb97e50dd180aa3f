"""Checks that need no container: is there a model, a script, an image, an engine for what was selected?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_uniclaw.agents.base import Agent
from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.desktop import image_for
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.extensions import load_provider, load_simulator, load_supervisor
from pytest_uniclaw.judge.base import Supervisor
from pytest_uniclaw.modelchoice import SCRIPT, ModelChoice, parse_model
from pytest_uniclaw.package import HiddenFolder, has_hidden
from pytest_uniclaw.report.gate import parse_gate
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task

GRADER_IMAGE = "grader"


@dataclass(frozen=True)
class Wanted:
    """One selected task and the name of its agent, None for one that only a conftest knows."""

    task: Task
    agent: str | None


def check_models(wanted: Sequence[Wanted], settings: Settings) -> bool:
    """Make sure every known executor that needs a model has one; return whether any may. Raises SettingsError."""
    refuse_one_cassette(settings)
    for text in settings.models:
        refuse_misspelt(text)
    needed = False
    for item in wanted:
        if item.agent is None:
            needed = True
            continue
        agent = load_agent(item.agent, settings.agent_tables)
        if agent.needs_model:
            needed = True
            for text in settings.models or (item.task.model,):
                check_model(item.task, agent.name, parse_model(text), settings)
    return needed


def check_sandbox(wanted: Sequence[Wanted], settings: Settings) -> None:
    """Make sure sandbox, supervisor, simulator and gate can be used. Raises SettingsError with the remedy."""
    supervisor = load_supervisor(settings.supervisor.name)
    load_simulator(settings.simulator.name)
    provider = load_provider(settings.sandbox)
    names = dict.fromkeys(item.agent for item in wanted if item.agent is not None)
    agents = [load_agent(name, settings.agent_tables) for name in names]
    if provider.trusted_only and parse_gate(settings.gate):
        raise SettingsError(
            f"--gate with --sandbox={provider.name}: that sandbox is not isolation, so it gates nothing"
        )
    for agent in agents:
        refuse_stranger(agent, settings)
    own = supervisor_images(supervisor)
    if own and provider.trusted_only:
        raise SettingsError(
            f"--supervisor={supervisor.name} judges in a container, which --sandbox={provider.name} has none of\n"
            "  fix: use --sandbox=docker, or --supervisor=model"
        )
    provider.check([*images_of(wanted, settings), *own])


def notices(wanted: Sequence[Wanted], settings: Settings) -> list[str]:
    """Return what the user must know before anything runs: code on the host, and strangers without isolation."""
    scripts = sorted({item.task.task_id for item in wanted if item.task.pre_exec})
    lines = [f"pre_exec: scripts of these packages run on this host: {', '.join(scripts)}"] if scripts else []
    provider = load_provider(settings.sandbox)
    if provider.trusted_only:
        known = {item.agent for item in wanted}
        strangers = sorted(
            name or "a conftest's agent"
            for name in known
            if name is None or not load_agent(name, settings.agent_tables).trusted
        )
        if strangers:
            lines.append(f"warning: {', '.join(strangers)} in the {provider.name} sandbox: it is not isolation")
    return lines


def refuse_stranger(agent: Agent, settings: Settings) -> None:
    """Raise SettingsError for an untrusted agent in a sandbox for trusted ones that was not asked for by option."""
    provider = load_provider(settings.sandbox)
    if provider.trusted_only and not agent.trusted and not settings.sandbox_given:
        raise SettingsError(
            f"{agent.name} in the {provider.name} sandbox: only trusted agents (oracle, nop) run there; "
            f"if you trust it with this machine, say --sandbox={provider.name} on the command line"
        )


def images_of(wanted: Iterable[Wanted], settings: Settings) -> list[str]:
    """Return the names of the images without which nothing can start: those of the executors and their grading.

    An image with a desktop belongs to them only where nothing selected does without one; an item whose desktop is
    missing is skipped else, for such an image is built on demand.
    """
    agents = [(_agent_of(item, settings), item.task) for item in wanted]
    needed = [(agent.image, image_for(agent.image, task)) for agent, task in agents if agent]
    plain = [image for own, image in needed if image == own]
    return list(dict.fromkeys([*(plain or [image for _, image in needed]), GRADER_IMAGE]))


def _agent_of(item: Wanted, settings: Settings) -> Agent | None:
    return load_agent(item.agent, settings.agent_tables) if item.agent is not None else None


def supervisor_images(supervisor: Supervisor) -> tuple[str, ...]:
    """Return the images that a supervisor runs in beside the grader's: what its ``images`` names, if it has any."""
    return tuple(getattr(supervisor, "images", ()))


def check_model(task: Task, agent: str, choice: ModelChoice, settings: Settings) -> None:
    """Make sure that a model can be asked: its provider is configured, or its script is there. Raises SettingsError.

    A cassette needs neither.
    """
    if settings.cassette_replay is not None:
        return
    if choice.scripted:
        _check_script(task, choice)
    else:
        require_provider(f"agent {agent}", task, choice, settings, "or run the scripted model with --model=script")


def require_provider(who: str, task: Task, choice: ModelChoice, settings: Settings, otherwise: str = "") -> None:
    """Raise SettingsError, with the remedy, when a model's provider is not configured, or a cap lacks its price."""
    known = [provider.name for provider in settings.providers]
    if choice.provider in known:
        _require_price(who, task, choice, settings)
        return
    variable = settings.missing_keys.get(choice.provider)
    if variable is not None:
        lack, way = f"the provider {choice.provider!r} has no key", f"set {variable}"
    else:
        lack = f"no provider {choice.provider!r} is configured"
        way = f"add [providers.{choice.provider}] to uniclaw.toml"
    way = _meant(choice, [*known, *settings.missing_keys]) + way
    raise SettingsError(
        f"{who} needs a model, and {lack} for {choice.name!r} (task {task.task_id}).\n"
        f"  fix: {', '.join(filter(None, (way, otherwise)))}"
    )


def _require_price(who: str, task: Task, choice: ModelChoice, settings: Settings) -> None:
    """Raise SettingsError when the session's money is capped and the model's calls have no known cost."""
    if settings.max_cost is None:
        return
    (prices,) = (provider.prices for provider in settings.providers if provider.name == choice.provider)
    if not {"input", "output"} <= prices.get(choice.name, {}).keys():
        raise SettingsError(
            f"max_cost={settings.max_cost:g} needs the price of every model, and the provider "
            f"{choice.provider!r} has none for {choice.name!r} ({who}, task {task.task_id})\n"
            f'  fix: state input and output in [providers.{choice.provider}.prices."{choice.name}"] of uniclaw.toml, '
            "or set no max_cost"
        )


def _meant(choice: ModelChoice, known: Sequence[str]) -> str:
    """Return a question for a provider of nearly this name, or for a model that bears nearly a provider's name."""
    provider = difflib.get_close_matches(choice.provider, known, 1)
    if provider and provider[0] != choice.provider:
        return f"did you mean {provider[0]}/{choice.name}? Else "
    model = difflib.get_close_matches(choice.name, known, 1)
    return f"did you mean {model[0]}/MODEL? Else " if model else ""


def refuse_misspelt(text: str) -> None:
    """Raise SettingsError for a ``--model`` without a provider that is nearly ``script`` or ``script:FILE``."""
    head, colon, file = text.partition(":")
    if head != SCRIPT and "/" not in head and difflib.get_close_matches(head.lower(), [SCRIPT], 1, 0.8):
        raise SettingsError(
            f"--model={text}: did you mean {SCRIPT}{colon}{file}?\n"
            f"  fix: write --model={SCRIPT}{colon}{file}, or --model=PROVIDER/{text} for a model of that name"
        )


def refuse_one_cassette(settings: Settings) -> None:
    """Raise SettingsError where a session would overwrite the cassettes that it is answered from."""
    replay, record = settings.cassette_replay, settings.cassette_record
    if replay is not None and record is not None and replay.resolve() == record.resolve():
        raise SettingsError(
            f"--uniclaw-cassette-record and --uniclaw-cassette-replay name the same folder: {replay}\n"
            "  fix: record into another folder, or leave out one of the two"
        )


def _check_script(task: Task, choice: ModelChoice) -> None:
    if choice.script is not None:
        if not choice.script.is_file():
            raise SettingsError(
                f"--model=script:{choice.script}: no such file: {choice.script.absolute()}\n"
                "  fix: correct the path; a relative one is taken from the folder where pytest was started"
            )
        return
    if not has_hidden(task, HiddenFolder.SCRIPT, "model.yaml"):
        raise SettingsError(
            f"--model=script: {task.task_id} ships no script: no script/model.yaml in {task.folder}.\n"
            "  fix: write it, or give one script for all tasks with --model=script:FILE"
        )
