"""The model supervisor: a tool-using model that reads the evidence and answers line by line of the rubric."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_uniclaw.agents.usage import final_answer
from pytest_uniclaw.errors import GradingError, SandboxLost
from pytest_uniclaw.judge.base import Assignment, Case, Judge, Roles
from pytest_uniclaw.judge.casefile import first_message, prompt_digest, system_prompt
from pytest_uniclaw.judge.conversation import Limits, converse
from pytest_uniclaw.judge.desk import open_desk, task_text, texts_of
from pytest_uniclaw.judge.drift import new_deductions
from pytest_uniclaw.judge.examine import Examiner
from pytest_uniclaw.judge.injection import scan
from pytest_uniclaw.judge.panel import panel_of
from pytest_uniclaw.judge.submission import tool_definition
from pytest_uniclaw.judge.supervisor import nothing, rubric_digest
from pytest_uniclaw.judge.toolset import TOOLS
from pytest_uniclaw.modelchoice import ModelChoice, RoleChoice
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.verdict import Assessment

VERSION = "1"
EVIDENCE_REFUSED = "evidence_refused"
"""Flag: the judge's provider refused what the judge had read, and it went on without that."""
EMPTY_RESULTS = "empty_results"
"""Flag: the executor left no file, no exported state and no words."""


@dataclass(frozen=True)
class ModelSupervisor:
    """Judges by a model with read-only tools over evidence, references and sources.

    ``choice`` is the model, ``effort`` its reasoning effort, ``instructions`` are the task author's own words to it,
    ``limits`` bound one conversation. Scripted models get no nonce, for a script cannot know it.
    """

    choice: ModelChoice | None = None
    effort: str = ""
    instructions: str = ""
    limits: Limits = Limits()
    name: str = "model"

    @property
    def needs_model(self) -> bool:
        """Always."""
        return True

    @property
    def version(self) -> str:
        """Changes with prompts, model, effort, instructions, limits and, for a script, its content."""
        model = (self.choice.provider, self.choice.name) if self.choice else ()
        parts = (prompt_digest(), model, _script(self.choice), self.effort, self.instructions, self.limits)
        return f"{VERSION}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"

    def configured(self, role: RoleChoice) -> Judge:
        """Return the supervisor for one task: its model, effort and instructions, and a panel where one is wanted."""
        chosen = replace(
            self, choice=role.model or self.choice, effort=role.effort or self.effort,
            instructions=role.guidance or self.instructions,
        )  # fmt: skip
        return panel_of(chosen, role.judges)

    def assess(self, case: Case) -> Assessment:
        """Judge the whole rubric. See :meth:`judge`."""
        return self.judge(case, Assignment.whole(case.rubric))

    def judge(self, case: Case, assignment: Assignment) -> Assessment:
        """Judge what is assigned.

        A workspace that dies is opened once more; when it dies again everything assigned is unmet and flagged
        ``grader_crash`` (invariant 3). Raises GradingError when no usable answer could be had, InfraError for what the
        provider or the engine did not do.
        """
        choice, roles = self.choice, case.roles
        if choice is None or roles is None:
            raise GradingError(_no_model(case, assignment))
        references = open_hidden(case.task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
        effort = f" effort:{self.effort}" if self.effort else ""
        asked = f"{self.name}/{VERSION} {choice.provider}/{choice.name}{effort}"
        grader = f"{asked} rubric:{rubric_digest(references)} prompt:{prompt_digest()}"
        nonce = "" if choice.scripted else nonce_of(case, references, assignment.tag)
        for _ in range(2):
            try:
                assessment = self._converse(case, assignment, choice, roles, nonce)
            except SandboxLost:
                continue
            flags = (*assessment.flags, *_empty(case), *new_deductions(case, assessment))
            return assessment.model_copy(update={"flags": flags, "grader": grader})
        return nothing(assignment, grader)

    def _converse(
        self, case: Case, assignment: Assignment, choice: ModelChoice, roles: Roles, nonce: str
    ) -> Assessment:
        opened = roles.open("supervisor", choice, turn=case.turn, effort=self.effort, tag=assignment.tag)
        refused: list[str] = []
        with open_desk(case) as desk, opened as chat:
            suspicion = scan(texts_of(desk), task_text(case))
            examiner = Examiner(assignment, nonce, desk, suspicion)
            assessment = converse(
                chat, desk.workspace, system=system_prompt(nonce, self.instructions),
                first=first_message(case, assignment), tools=TOOLS, final=tool_definition(assignment, nonce),
                accept=examiner.accept, limits=self.limits,
                on_withheld=lambda: refused.append(EVIDENCE_REFUSED),
            )  # fmt: skip
        return assessment.model_copy(update={"flags": (*assessment.flags, *suspicion.flags, *refused[:1])})


def nonce_of(case: Case, references: Path, tag: str) -> str:
    """Return a word that whoever has not seen the rubric cannot know, the same for the same case.

    It does not change between a run and its replay from a cassette, as a random one would.
    """
    rubric = (references / "eval_rule.md").read_bytes()
    key = f"nonce\0{case.task.task_id}\0{case.turn}\0{tag}\0".encode()
    return hashlib.sha256(key + rubric).hexdigest()[:12]


def _no_model(case: Case, assignment: Assignment) -> str:
    names = [c.id for c in assignment.checkpoints] + [c.id for c in assignment.caps]
    what = ", ".join(names[:12]) or "the score of the formula"
    return (
        f"{case.task.task_id}: a model must judge {what}, and none can be asked; "
        "name one with --uniclaw-supervisor-model=PROVIDER/NAME, or add references/checks/check_*.py"
    )


def _empty(case: Case) -> Sequence[str]:
    """Flag a turn that left nothing to judge."""
    folders = (case.evidence.results, case.evidence.state)
    files = any(path.is_file() for folder in folders if folder.is_dir() for path in folder.rglob("*"))
    return () if files or final_answer(case.evidence.records()).strip() else (EMPTY_RESULTS,)


def _script(choice: ModelChoice | None) -> bytes:
    script = choice.script if choice else None
    return script.read_bytes() if script and script.is_file() else b""
