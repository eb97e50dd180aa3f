"""``uniclaw doctor``: is everything here that a run needs, and if not, what to do about it?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.agents.edict_source import VARIABLE, load_edict
from pytest_uniclaw.agents.registry import agent_names, load_agent
from pytest_uniclaw.errors import SettingsError, UniclawError
from pytest_uniclaw.extensions import load_provider
from pytest_uniclaw.sandbox.engine_setup import Action, EnginePlan, gather_facts, plan_engine
from pytest_uniclaw.sandbox.image_spec import DEMO_IMAGES
from pytest_uniclaw.settings import Settings, edict_source

GIB = 1024**3
LEAST_DISK = 10 * GIB
LEAST_MEMORY = 4 * GIB
_STARTS: dict[Action, str] = {
    "start service": "systemctl start docker (in a checkout, make setup does it)",
    "start dockerd": "make setup starts it; without a checkout, python -m pytest_uniclaw.sandbox.engine_setup",
    "install": "make setup installs and starts it; without a checkout, apt-get install docker.io and start it",
}
"""What the user does where setting up would do something."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``remedy`` says what helps where it is ``MISS``."""

    subject: str
    kind: Literal["ok", "info", "MISS"]
    text: str
    remedy: str = ""


def examine(settings: Settings) -> list[Finding]:
    """Look at engine, images, models, disk and memory. Starts nothing and changes nothing."""
    return [*_engine(), *_agents(settings), _edict(), *_models(settings), _disk(), _memory()]


def _engine() -> Iterator[Finding]:
    provider = load_provider("docker")
    try:
        provider.check(())
    except UniclawError as error:
        yield engine_finding(plan_engine(gather_facts()), str(error).partition("\n")[0])
        return
    yield Finding("engine", "ok", "a Docker engine answers")
    for image in DEMO_IMAGES:
        try:
            provider.check((image,))
            yield Finding("image", "ok", f"{image} is built")
        except UniclawError as error:
            text, _, remedy = str(error).partition("\n  fix: ")
            yield Finding("image", "MISS", text, remedy)


def engine_finding(plan: EnginePlan, refusal: str) -> Finding:
    """Say what to do about an engine that refused a session; ``plan`` is what setting up would do about it."""
    if plan.action == "use":
        text, remedy = f"{plan.reason}, but {refusal}", "bring the engine or the package docker up to date"
        return Finding("engine", "MISS", text, remedy)
    return Finding("engine", "MISS", plan.reason, plan.remedy or _STARTS[plan.action])


def _agents(settings: Settings) -> Iterator[Finding]:
    """Say of every agent that the settings describe whether its image is there."""
    tables, provider = settings.agent_tables, load_provider("docker")
    try:
        agent_names(tables)
    except SettingsError as error:
        text, _, remedy = str(error).partition("\n  fix: ")
        yield Finding("agent", "MISS", text, remedy)
        return
    for agent in (load_agent(name, tables) for name in tables.tables):
        try:
            provider.check((agent.image,))
            yield Finding("agent", "ok", f"{agent.name} {agent.version} in {agent.image}")
        except SettingsError as error:
            text, _, remedy = str(error).partition("\n  fix: ")
            yield Finding("agent", "MISS", f"{agent.name}: {text}", remedy)


def _edict() -> Finding:
    """Say whether the agent that is no part of this project has its source."""
    folder = edict_source()
    if not folder:
        return Finding("edict", "info", f"{VARIABLE} is not set, so openclaw_edict cannot run (scripts/fetch-edict)")
    try:
        load_edict(folder)
    except SettingsError as error:
        text, _, remedy = str(error).partition("\n  fix: ")
        return Finding("edict", "MISS", text, remedy)
    return Finding("edict", "ok", f"the pinned commit is in {folder}")


def _models(settings: Settings) -> Iterator[Finding]:
    yield Finding("model", "ok", "the scripted model is built in (--model=script)")
    for provider in settings.providers:
        yield Finding("model", "ok", f"provider {provider.name} at {provider.base_url}")
    for variable in settings.missing_keys.values():
        yield Finding("model", "info", f"{variable} is not set, so the models of that provider are not offered")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / GIB:.1f} GiB free"
    if free >= LEAST_DISK:
        return Finding("disk", "ok", text)
    return Finding("disk", "MISS", text, "free 10 GiB; `uniclaw images prune` helps")


def _memory() -> Finding:
    lines = Path("/proc/meminfo").read_text("ascii").splitlines() if Path("/proc/meminfo").is_file() else []
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    free = values.get("MemAvailable")
    if free is None:
        return Finding("memory", "info", "unknown on this system")
    text = f"{free / GIB:.1f} GiB available"
    if free >= LEAST_MEMORY:
        return Finding("memory", "ok", text)
    return Finding("memory", "MISS", text, "run with a smaller -n")
