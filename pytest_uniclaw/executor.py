"""The executor: run a turn of the agent, bring out what it left, and ask the gateway what it did."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pytest_uniclaw.agents.base import Record, TurnRequest
from pytest_uniclaw.agents.guard import GuardedAgent
from pytest_uniclaw.agents.joining import has_notice
from pytest_uniclaw.agents.transcript import move_images_out, records_from_messages, to_jsonl
from pytest_uniclaw.agents.turns import Turns, split
from pytest_uniclaw.agents.usage import call_ids, final_answer, tool_usage
from pytest_uniclaw.attempt import Manifest
from pytest_uniclaw.desktop import PROBE_FOLDER, look, probe_folder
from pytest_uniclaw.errors import AgentError, InfraError, ModelRefused, SandboxLost
from pytest_uniclaw.judge.base import Evidence
from pytest_uniclaw.models.chat_client import open_chat
from pytest_uniclaw.models.client import Gateway
from pytest_uniclaw.models.exchange import count_calls, log_end, rebuild_messages
from pytest_uniclaw.models.grants import Call, Grant, GrantRequest
from pytest_uniclaw.recording import Recording
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.roles import RoleModels
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Pulse, Sandbox, TurnLimits
from pytest_uniclaw.sandbox.services import Running, export_state
from pytest_uniclaw.scrub import SECRET_IN_RESULTS, redact_collected, redact_file, redact_folder
from pytest_uniclaw.spec import AttemptSpec
from pytest_uniclaw.store import exchange_folder, write_bytes, write_json
from pytest_uniclaw.task import Task, Variant

TRANSCRIPT_REBUILT = "transcript_rebuilt"
"""Flag: what a turn's record has that the agent's session lacks comes from the exchange log."""
TRANSCRIPT_UNREADABLE = "transcript_unreadable"
"""Flag: the adapter failed at the transcript; what stands for it is rebuilt from the exchange log, if there is one."""
TRANSCRIPT_DIFFERS = "transcript_differs"
"""Flag: the transcript has more calls of tools than the model made, or more messages of the user than were sent."""
NOTICES = {"cut": "transcript_cut", "brokenLines": "transcript_broken", "missing": "transcript_missing"}
"""Flags by what a closing notice of the transcript says: the session is larger than a transcript may be; it has lines
that are no JSON object; no file of it was where the agent's table names it."""
SETTLE_SECONDS = 2.0
"""How long a call in flight may take to be recorded once the executor's processes are gone."""
PLAIN_QUESTION = "Answer with the word yes."
PLAIN_SECONDS = 120.0
"""How long a provider may take for the plain question, with the gateway's own tries."""
KEPT_LOG_BYTES = 65_536
"""What stays of a log whose disk is full."""


@dataclass(frozen=True)
class TurnEvidence:
    """What a turn left: its evidence folder, what was collected, the whole session's records, facts about both."""

    evidence: Evidence
    manifest: Manifest
    records: tuple[Record, ...]
    answer: str
    flags: tuple[str, ...] = ()


@dataclass
class Executor:
    """A provisioned executor: an agent in its sandbox, with services and a model grant.

    ``notes`` are flags of what went wrong beside the turns; ``request`` is the turn that was run last, ``exchanged``
    where the exchange log ended when it began.
    """

    spec: AttemptSpec
    task: Task
    variant: Variant
    sandbox: Sandbox
    services: tuple[Running, ...]
    gateway: Gateway | None = None
    grant: Grant | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    resources: ExitStack = field(default_factory=ExitStack)
    recording: Recording | None = None
    notes: list[str] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    request: TurnRequest | None = None
    exchanged: int = 0

    @cached_property
    def redactor(self) -> Redactor:
        """What blanks the secrets of this run in everything that comes out of the sandbox."""
        return Redactor(self.spec.run.secrets())

    @cached_property
    def roles(self) -> RoleModels | None:
        """How this attempt's supervisor and user simulator reach their models; None without a gateway."""
        spec = self.spec
        if spec.gateway is None:
            return None
        return RoleModels(
            spec.gateway, spec.attempt_id, spec.directory, spec.task.task_id, spec.run.secrets(), spec.played
        )

    @cached_property
    def agent(self) -> GuardedAgent:
        """The adapter, behind its guard: nothing else calls it."""
        return GuardedAgent(self.spec.agent, self.spec.directory, self.redactor)

    def wrap_up(self) -> tuple[str, ...]:
        """End what ran beside the turns, before the attempt is recorded; return its flags. Never raises."""
        if self.recording is not None:
            self.notes += self.recording.finish(self.spec.directory)
            self.recording = None
        return tuple(self.notes)

    def close(self) -> None:
        """Revoke the grant and remove the sandbox before whoever opened it does; may be repeated."""
        self.resources.close()

    def turn(self, number: int, message: str, limits: TurnLimits) -> Completed:
        """Run one turn of the agent; its output is logged to ``turns/<n>/agent.log``.

        A log that the disk could not hold is cut back, so that the record and the rest of the session have room.
        """
        log = self.turn_folder(number) / "agent.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        pulse = PulseReader(self.gateway, self.spec.attempt_id)
        self.request = TurnRequest(number, message, limits, pulse, log, self.environment)
        self.exchanged = log_end(exchange_folder(self.spec.directory))
        try:
            completed = self.agent.turn(self.sandbox, self.request)
        except OSError:
            with suppress(OSError):
                os.truncate(log, min(log.stat().st_size, KEPT_LOG_BYTES))
            raise
        finally:
            redact_file(log, self.redactor)
        return replace(completed, output=self.redactor.data(completed.output))

    def collect(self, number: int, limits: CollectLimits | None = None) -> TurnEvidence:
        """Export state, freeze, copy deliverables and transcript out, redact them by value, and normalise them.

        Raises what the sandbox raises, and leaves no half of a collection then; after :class:`SandboxLost` use
        :meth:`salvage`.
        """
        folder = self.turn_folder(number)
        evidence = Evidence(folder / "evidence")
        flags = export_state(self.sandbox, self.services, evidence.state)
        for exported in (evidence.state, evidence.folder / "export_errors.log"):
            redact_folder(exported, self.redactor)
        wanted = {self.sandbox.paths.results: evidence.results}
        if self.task.gui:
            flags += look(self.sandbox, pictures=not self.variant.privacy_keys)
            wanted[probe_folder(self.sandbox)] = evidence.state / PROBE_FOLDER
        sources = self.agent.transcript_sources(self.sandbox)
        wanted.update({source: folder / "raw" / str(index) for index, source in enumerate(sources)})
        try:
            manifests = self.sandbox.collect(wanted, limits or CollectLimits())
            kept = {path: redact_collected(wanted[path], manifests[path], self.redactor) for path in wanted}
        except (InfraError, SandboxLost, OSError):
            for destination in (evidence.results, folder / "raw"):
                shutil.rmtree(destination, ignore_errors=True)
            raise
        manifest = kept[self.sandbox.paths.results]
        flags += [SECRET_IN_RESULTS] if manifest != manifests[self.sandbox.paths.results] else []
        records, unread = self._read_transcript(folder / "raw") if sources else ((), [])
        flags += unread
        shutil.rmtree(folder / "raw", ignore_errors=True)  # normalised now; an agent's folder may hold its key
        return self._write(number, records, manifest, tuple(flags))

    def _read_transcript(self, raw: Path) -> tuple[tuple[Record, ...], list[str]]:
        """Return the transcript, or none and a flag: the executor wrote it, so it may be what breaks an adapter."""
        try:
            return self.agent.read_transcript(raw), []
        except AgentError:
            return (), [TRANSCRIPT_UNREADABLE]

    def salvage(self, number: int) -> TurnEvidence:
        """Return what is known of a turn whose sandbox is gone: the conversation the gateway saw.

        A disk that refuses it leaves nothing; that never raises.
        """
        try:
            return self._write(number, (), Manifest(), ())
        except OSError:
            return TurnEvidence(Evidence(self.turn_folder(number) / "evidence"), Manifest(), (), "", ("not_salvaged",))

    def calls(self) -> Sequence[Call]:
        """Return the executor's model calls so far; one that a killed process left is awaited, for it ends at once."""
        if self.gateway is None:
            return ()
        give_up = time.monotonic() + SETTLE_SECONDS
        while self.gateway.activity(self.spec.attempt_id).calls_in_flight and time.monotonic() < give_up:
            time.sleep(0.02)
        return self.gateway.calls(self.spec.attempt_id, "executor")

    def relay_ended(self) -> bool:
        """Whether the relay by which the executor reaches the gateway has ended while the session goes on."""
        address = self.spec.gateway
        return address is not None and bool(address.relay) and address.relay_ended.exists()

    def provider_answers(self) -> bool:
        """Whether the executor's provider answers a plain question of the harness, with the same key and model.

        A script and a cassette answer by what they hold, which says nothing of a provider: False.
        """
        spec = self.spec
        if spec.gateway is None or spec.model is None or spec.model.scripted or spec.played is not None:
            return False
        request = GrantRequest(
            attempt=spec.attempt_id, role="harness", model=spec.model.name, provider=spec.model.provider,
            upstream_model=spec.model.name, log=exchange_folder(spec.directory, "harness"), secrets=spec.run.secrets(),
        )  # fmt: skip
        try:
            with open_chat(spec.gateway, request) as chat:
                chat.complete([{"role": "user", "content": PLAIN_QUESTION}], seconds=PLAIN_SECONDS)
        except InfraError:
            return False
        except ModelRefused:  # an answer too: it knows the key and the model, and has read the request
            return True
        return True

    def waited(self) -> float:
        """Return the seconds providers made this attempt wait so far."""
        return self.gateway.activity(self.spec.attempt_id).waited_seconds if self.gateway else 0.0

    def turn_folder(self, number: int) -> Path:
        """Return the host folder of a turn."""
        return self.spec.directory / "turns" / str(number)

    def _write(
        self, number: int, session: tuple[Record, ...], manifest: Manifest, flags: tuple[str, ...]
    ) -> TurnEvidence:
        log = self._exchange_log()
        told = records_from_messages(rebuild_messages(log, self.exchanged)) if log else ()
        message = self.request.message if self.request else ""
        records, rebuilt = self.turns.take(number, message, session, told)
        flags += (TRANSCRIPT_REBUILT,) if rebuilt else ()
        flags += (TRANSCRIPT_DIFFERS,) if log and _tells_more(records, number, count_calls(log)) else ()
        records, images = move_images_out(tuple(self.redactor.value(records)))
        flags += tuple(flag for fact, flag in NOTICES.items() if has_notice(records, fact))
        evidence = Evidence(self.turn_folder(number) / "evidence")
        for folder in (evidence.results, evidence.state):
            folder.mkdir(parents=True, exist_ok=True)
        for name, image in images.items():
            write_bytes(evidence.folder / name, self.redactor.data(image))
        write_bytes(evidence.folder / "transcript.jsonl", to_jsonl(records))
        write_json(evidence.folder / "tool_usage.json", tool_usage(records))
        write_json(evidence.folder / "manifest.json", manifest.model_dump(mode="json"))
        answer = final_answer(records) or self._last_output(number)
        return TurnEvidence(evidence, manifest, records, answer, flags)

    def _last_output(self, number: int) -> str:
        log = self.turn_folder(number) / "agent.log"
        return log.read_bytes()[-2000:].decode("utf-8", "replace").strip() if log.is_file() else ""

    def _exchange_log(self) -> Path | None:
        log = exchange_folder(self.spec.directory)
        return log if self.grant is not None and log.is_dir() else None


def _tells_more(records: Sequence[Record], sent: int, calls: int) -> bool:
    """Whether a transcript tells of more than ``sent`` messages of the user or more than ``calls`` calls of tools."""
    return len(split(records).turns) > sent or len(call_ids(records)) > calls


@dataclass
class PulseReader:
    """Reads the signs of life of one turn; provider waiting counts from the turn's start."""

    gateway: Gateway | None
    attempt: str
    base: float | None = None

    def __call__(self) -> Pulse:
        """Ask the gateway; without one, silence is judged by output alone."""
        if self.gateway is None:
            return Pulse()
        activity = self.gateway.activity(self.attempt)
        if self.base is None:
            self.base = activity.waited_seconds
        return Pulse(
            idle=activity.last_event, busy=activity.calls_in_flight > 0, waited=activity.waited_seconds - self.base
        )
