"""Provisioning: one context manager that turns a spec into a running executor.

Order: private copy and ``pre_exec`` on the host, sandbox, sources and skills, desktop, services, recording, the service
set, model grant, agent configuration. Whatever fails, the exit takes everything down again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.agents.base import ModelAccess
from pytest_uniclaw.assets import BASE_SKILLS, base_skill
from pytest_uniclaw.desktop import start_desktop, variables
from pytest_uniclaw.errors import InfraError, SandboxLost, UniclawError
from pytest_uniclaw.executor import Executor
from pytest_uniclaw.models.client import Gateway
from pytest_uniclaw.models.grants import Grant, GrantRequest
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden, private_copy
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.preexec import run_pre_exec
from pytest_uniclaw.recording import QUALITIES, RECORDING_FAILED, RECORDING_WITHHELD, start_recording
from pytest_uniclaw.sandbox.base import Entry, Sandbox, SandboxSpec
from pytest_uniclaw.sandbox.services import start_services
from pytest_uniclaw.spec import AttemptSpec
from pytest_uniclaw.store import exchange_folder, write_text
from pytest_uniclaw.task import Task, Variant, resolve_variant

BESIDE_SECONDS = 7200.0
"""How long what is beside an executor's turn may take, such as services, judges and the user simulator: a container
that is older than all its turns could be is left over, and a later session removes it."""
EXECUTOR_CALLS = 16
"""Model calls of one executor at once, more than any agent makes; further ones wait. Each holds its request in the
memory of the gateway, which all attempts share."""
MODEL_URL = "http://127.0.0.1:4010/v1"
"""Where an executor finds its model: the forwarder inside its own sandbox."""


@dataclass(frozen=True)
class Unprovisioned:
    """An executor that could not be provisioned; ``run_attempt`` gives the error its status and tries again."""

    spec: AttemptSpec
    error: Exception


@contextmanager
def provision(spec: AttemptSpec) -> Iterator[Executor | Unprovisioned]:
    """As :func:`open_executor`, but a declared error is yielded instead of raised, for the loop to deal with."""
    with ExitStack() as stack:
        try:
            opened: Executor | Unprovisioned = stack.enter_context(open_executor(spec))
        except (UniclawError, OSError) as error:
            opened = Unprovisioned(spec, error)
        yield opened


@contextmanager
def open_executor(spec: AttemptSpec) -> Iterator[Executor]:
    """Provision sandbox, services, grant and agent of a spec.

    Raises :class:`PreExecError`, :class:`InfraError`, :class:`EngineError` or :class:`TaskUnavailable`; on exit the
    grant is revoked and the sandbox removed, whatever happened.
    """
    with ExitStack() as stack:
        try:
            executor = _provisioned(spec, stack)
        except SandboxLost as error:
            raise InfraError(f"the sandbox was lost before the executor ran: {error}") from error
        yield executor


def _provisioned(spec: AttemptSpec, stack: ExitStack) -> Executor:
    """Provision an executor; what is to be taken down again is left on the stack."""
    started = time.monotonic()
    variant = resolve_variant(spec.task, spec.run.snapshot_mode)
    environment = spec.run.privacy.environment(variant.privacy_keys) | dict(variant.environment)
    package = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=scratch_prefix(spec.run.run))))
    task = private_copy(spec.task, package)
    run_pre_exec(
        task, privacy=environment, environment_base=spec.run.environment, log=spec.directory / "pre_exec.log",
        locks=spec.run.directory / "locks",
    )  # fmt: skip
    sandbox = stack.enter_context(spec.provider.open(sandbox_spec(spec)))
    if inputs := input_entries(task, variant, sandbox):
        sandbox.put(inputs)
    environment |= variables(task)
    if task.gui:
        start_desktop(sandbox, variables(task))
    services = start_services(sandbox, task, environment, spec.directory)
    executor = Executor(spec, task, variant, sandbox, services, environment=environment, resources=stack)
    _start_recording(executor)
    if services or task.gui:  # without them nothing runs yet that a sweep must leave alone
        sandbox.keep()
    access = _grant(spec, task, executor, stack)
    executor.agent.prepare(sandbox, task, access)
    write_text(spec.directory / "provisioned", f"{time.monotonic() - started:.3f} s\n")
    return executor


def sandbox_spec(spec: AttemptSpec) -> SandboxSpec:
    """Return what the provider must make for a spec; nothing in it is secret."""
    network: Literal["isolated", "internet"] = "internet" if spec.network == "internet" else "isolated"
    gateway = spec.gateway if spec.model else None
    return SandboxSpec(
        owner=spec.owner,
        image=spec.image,
        user="root" if spec.user == "root" else "agent",
        network=network,
        memory=spec.memory,
        cpus=spec.task.cpus or 0.0,
        gateway=gateway.agent_socket.parent if gateway else None,
        relay=gateway.relay if gateway else "",
        lifetime=spec.budget.total_seconds + spec.budget.turns * (spec.budget.max_waiting_seconds + BESIDE_SECONDS),
        environment=dict(spec.run.proxies) if network == "internet" else {},
        keepable=spec.run.keep,
    )


def input_entries(task: Task, variant: Variant, sandbox: Sandbox) -> list[Entry]:
    """Return what the executor finds at its start: the sources that are not withheld, and the declared skills."""
    paths, user = sandbox.paths, sandbox.user
    entries = []
    sources = task.folder / "sources"
    children = sorted(sources.iterdir()) if sources.is_dir() else []
    for child in children:
        if child.name not in variant.excluded_sources:
            entries.append(Entry(f"{paths.sources}/{child.name}", source=child, user=user))
    for skill in task.skills:
        folder = task.folder / "skills" / skill
        if folder.is_dir():
            entries.append(Entry(f"{paths.skills}/{skill}", source=folder, user=user))
        elif skill in BASE_SKILLS:
            files = base_skill(skill).items()
            entries += [Entry(f"{paths.skills}/{skill}/{name}", content, user=user) for name, content in files]
    return entries


def _start_recording(executor: Executor) -> None:
    """Record the screen where the task says so; what keeps that from being done is a flag."""
    spec = executor.spec
    quality = QUALITIES.get(executor.task.recording)
    if quality is None:
        return
    if executor.variant.privacy_keys or not executor.task.gui:
        executor.notes.append(RECORDING_WITHHELD)
        return
    executor.recording = start_recording(executor.sandbox, quality, sandbox_spec(spec).lifetime)
    if executor.recording is None:
        executor.notes.append(RECORDING_FAILED)


def _grant(spec: AttemptSpec, task: Task, executor: Executor, stack: ExitStack) -> ModelAccess | None:
    """Make the executor's grant, and have it revoked on the way out."""
    if spec.model is None or spec.gateway is None:
        return None
    gateway = Gateway(spec.gateway)
    script = spec.model.script
    if spec.model.scripted and script is None and spec.played is None:
        script = open_hidden(task, HiddenFolder.SCRIPT, Reader.SCRIPTED_PROVIDER) / "model.yaml"
    grant = gateway.grant(
        GrantRequest(
            attempt=spec.attempt_id,
            role="executor",
            model=spec.model.name,
            provider=spec.model.provider,
            upstream_model=spec.model.name,
            script=script,
            log=exchange_folder(spec.directory),
            secrets=spec.run.secrets(),
            max_concurrency=EXECUTOR_CALLS,
            **(spec.played.grant_fields("executor") if spec.played else {}),
        )
    )
    executor.gateway, executor.grant = gateway, grant
    stack.callback(_revoke, gateway, grant)
    return ModelAccess(MODEL_URL, grant.key, grant.model)


def _revoke(gateway: Gateway, grant: Grant) -> None:
    """End a grant; with a gateway that is gone, the grant is too."""
    with suppress(InfraError):
        gateway.revoke(grant)
