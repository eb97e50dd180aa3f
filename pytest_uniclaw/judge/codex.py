"""The Codex CLI as supervisor: the real program in a container of its own, with what the model supervisor reads.

The container has no network but the gateway's socket, no key but the grant's, and no rights. Request, conversation,
evidence, references and sources are copied in, root's and read-only. Out of it comes one file, the program's last
message, which is read and verified as every judge's submission is: by a schema, by code that looks up its quotes, and
with the same re-asks.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pytest_uniclaw.agents.base import ModelAccess
from pytest_uniclaw.agents.codex import RESUME, configuration, reasoning
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import GradingError, ModelRefused
from pytest_uniclaw.judge.base import Assignment, Case, Roles
from pytest_uniclaw.judge.casefile import first_message, prompt, system_prompt
from pytest_uniclaw.judge.conversation import reask, settle
from pytest_uniclaw.judge.desk import Desk, open_desk, task_text, texts_of
from pytest_uniclaw.judge.examine import Examiner
from pytest_uniclaw.judge.injection import scan
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.strictjson import TEXT_CHARACTERS, Rejected, last_object, parse_object
from pytest_uniclaw.judge.submission import strict_schema, tool_definition
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.role_grant import RoleGrant
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.provisioning import MODEL_URL
from pytest_uniclaw.sandbox.base import MIB, CollectLimits, Entry, Pulse, Sandbox, SandboxSpec, TurnLimits
from pytest_uniclaw.verdict import Assessment

RELEASE = "0.120.0"
"""The release that judges: upstream's, and the newest whose own sandbox needs no rights that a container lacks."""
ROOT = "/workspace"
MEMORY = 1024 * MIB
GRACE_SECONDS = 600.0
"""How long after its time a container that was left behind may be removed by anyone."""
ANSWER = "answer.json"
UNCONFINED = "codex_unconfined"
"""Flag: the kernel does not offer codex's own sandbox, so only the container confined what the judge ran."""
_LANDLOCK = "use_legacy_landlock"
_ASK = f"""
cd {ROOT}
rm -f "$HOME/{ANSWER}"
{RESUME}
exec codex exec --json --skip-git-repo-check --output-schema "$1" -o "$HOME/{ANSWER}" \
    ${{session:+resume "${{session: -36}}"}} - <"$0" >/dev/null 2>&1
"""


@dataclass(frozen=True)
class CodexSupervisor(ModelSupervisor):
    """Judges by the Codex CLI. Of ``limits`` those on calls, tokens and time hold, and the number of re-asks."""

    name: str = "codex"

    @property
    def version(self) -> str:
        """Changes as the model supervisor's, and with the release and the prompt for it."""
        own = hashlib.sha256(f"{RELEASE}\0{prompt('codex')}".encode()).hexdigest()[:4]
        return f"{super().version}{own}"

    @property
    def images(self) -> tuple[str, ...]:
        """The image that it runs in."""
        return (f"codex-{RELEASE}",)

    def judge(self, case: Case, assignment: Assignment) -> Assessment:
        """Judge what is assigned, as :meth:`ModelSupervisor.judge` does; needs a sandbox that confines strangers."""
        if case.provider.trusted_only:
            raise GradingError(f"--supervisor=codex does not run in the {case.provider.name} sandbox; use docker")
        found = super().judge(case, assignment)
        return found.model_copy(update={"grader": f"{found.grader} codex:{RELEASE}"})

    def _converse(
        self, case: Case, assignment: Assignment, choice: ModelChoice, roles: Roles, nonce: str
    ) -> Assessment:
        lent = roles.lend(
            "supervisor", choice, turn=case.turn, tag=assignment.tag, calls=self.limits.calls, tokens=self.limits.tokens
        )
        with open_desk(case) as desk, lent as grant, case.provider.open(self._spec(case, grant)) as sandbox:
            suspicion = scan(texts_of(desk), task_text(case))
            examiner = Examiner(assignment, nonce, desk, suspicion)
            confined = self._furnish(sandbox, desk, grant, assignment, nonce)
            instructions = system_prompt(nonce, self.instructions) + prompt("codex")
            first = f"{instructions}\n\n{first_message(case, assignment)}"
            assessment = self._ask(Program(sandbox, grant, case.owner.run), first, examiner)
        flags = (*assessment.flags, *suspicion.flags, *(() if confined else (UNCONFINED,)))
        return assessment.model_copy(update={"flags": flags})

    def _spec(self, case: Case, grant: RoleGrant) -> SandboxSpec:
        return SandboxSpec(
            owner=case.owner, image=self.images[0], memory=MEMORY, gateway=grant.address.agent_socket.parent,
            relay=grant.address.relay, lifetime=self.limits.seconds + self.limits.call_seconds + GRACE_SECONDS,
        )  # fmt: skip

    def _furnish(self, sandbox: Sandbox, desk: Desk, grant: RoleGrant, assignment: Assignment, nonce: str) -> bool:
        """Copy everything in and configure codex; return whether its own sandbox confines what it runs."""
        probe = ["codex", "sandbox", "linux", "--enable", _LANDLOCK, "--", "true"]
        confined = sandbox.run(probe, user=sandbox.user).exit_code == 0
        settings = {"sandbox_mode": "read-only" if confined else "danger-full-access", "project_doc_max_bytes": 0}
        settings |= reasoning(self.effort)
        access = ModelAccess(MODEL_URL, grant.grant.key, grant.grant.model)
        text = configuration(access, settings=settings, features={_LANDLOCK: confined})
        schema = strict_schema(tool_definition(assignment, nonce)["function"]["parameters"])
        folders = [Entry(f"{ROOT}/{name}", source=folder) for name, folder in desk.folders.items()]
        config = Entry(f"{sandbox.paths.home}/.codex/config.toml", text.encode(), mode=0o600, user=sandbox.user)
        sandbox.put([*folders, Entry(_schema(sandbox), json.dumps(schema).encode()), config])
        return confined

    def _ask(self, program: Program, first: str, examiner: Examiner) -> Assessment:
        """Ask until an answer is accepted, or ``limits.reasks`` times again. Raises GradingError and InfraError."""
        until = time.monotonic() + self.limits.seconds
        message, errors = first, list[str]()
        for left in range(self.limits.reasks, -1, -1):
            try:
                text = program.answer(message, until - time.monotonic(), self.limits.call_seconds)
                return examiner.accept(read_answer(text))
            except Rejected as rejected:
                if not left or time.monotonic() >= until:
                    asked = self.limits.reasks - left
                    return cast(Assessment, settle(rejected, f"after {asked} re-asks", errors))
                errors += rejected.errors
                message = reask(rejected)
        raise AssertionError("the last answer is accepted or settled")


@dataclass(frozen=True)
class Program:
    """Codex in its container, in one thread of questions; ``run`` names the scratch folders."""

    sandbox: Sandbox
    grant: RoleGrant
    run: str

    def answer(self, message: str, seconds: float, waiting: float) -> str:
        """Ask, and return the last message; ``waiting`` bounds what a provider's waiting adds to ``seconds``.

        Raises Rejected for an end without an answer that may be asked for again, GradingError for a late or refused
        one, InfraError for what the provider did not do.
        """
        path = f"{self.sandbox.paths.private}/message.txt"
        self.sandbox.put([Entry(path, content=message.encode("utf-8", "replace"))])
        limits = TurnLimits(seconds, seconds + waiting, waiting)
        with tempfile.TemporaryDirectory(prefix=scratch_prefix(self.run)) as scratch:
            log, answer = Path(scratch, "log"), Path(scratch, "answer")
            done = self.sandbox.turn(
                ["bash", "-c", _ASK, path, _schema(self.sandbox)], environment={}, limits=limits, pulse=self._pulse,
                log=log,
            )  # fmt: skip
            if done.ending is not Ending.EXITED or done.exit_code != 0:
                self._raise_failure(stop=done.ending is not Ending.EXITED)
            if done.ending is not Ending.EXITED:
                raise GradingError(f"codex gave no answer in {seconds:.0f} s")
            bounds = CollectLimits(file_bytes=4 * TEXT_CHARACTERS, total_bytes=4 * TEXT_CHARACTERS, files=1)
            self.sandbox.collect({f"{self.sandbox.paths.home}/{ANSWER}": answer}, bounds)
            found = next((file for file in answer.rglob(ANSWER) if file.is_file()), None)
            if found is None:
                raise Rejected(f"codex ended with status {done.exit_code} and without an answer")
            return found.read_bytes().decode("utf-8", "replace")

    def _pulse(self) -> Pulse:
        activity = self.grant.activity()
        busy = activity.calls_in_flight > 0
        return Pulse(idle=activity.last_event, busy=busy, waited=activity.waited_seconds)

    def _raise_failure(self, *, stop: bool) -> None:
        failure = self.grant.failure(stop=stop)
        if isinstance(failure, ModelRefused):
            raise GradingError(str(failure))
        if failure is not None:
            raise failure


def read_answer(text: str) -> Json:
    """Return the object that a last message submits. Raises Rejected."""
    try:
        return parse_object(last_object(text))
    except Rejected as rejected:
        raise Rejected(f"{rejected}; answer with one JSON object and nothing else") from None


def _schema(sandbox: Sandbox) -> str:
    return f"{sandbox.paths.private}/schema.json"
