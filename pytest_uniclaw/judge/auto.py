"""The default supervisor: a task's checks judge what they cover, a model judges the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.judge.base import Case, Judge
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.supervisor import ChecksSupervisor, marked_lines, tampered
from pytest_uniclaw.modelchoice import RoleChoice
from pytest_uniclaw.package import HiddenFolder, Reader, load_rubric, open_hidden
from pytest_uniclaw.task import Task
from pytest_uniclaw.verdict import Assessment


@dataclass(frozen=True)
class AutoSupervisor:
    """Checks first; what has none goes to ``model``, which is told what the checks found and cannot override it.

    A task that its checks decide wholly never opens a model.
    """

    checks: ChecksSupervisor = ChecksSupervisor()
    model: Judge = ModelSupervisor()
    name: str = "auto"

    @property
    def version(self) -> str:
        """Changes when that of either part does."""
        return f"{self.checks.version}+{self.model.version}"

    @property
    def needs_model(self) -> bool:
        """Whether some task may need one; :func:`static_needs_model` says it of a single task."""
        return True

    def asks_model(self, task: Task) -> bool:
        """Whether this task may need one; a rubric that cannot be read needs none, for it is never judged."""
        try:
            return static_needs_model(task)
        except TaskError:
            return False

    def configured(self, role: RoleChoice) -> AutoSupervisor:
        """Return the supervisor for one task, with its model."""
        model = self.model.configured(role) if isinstance(self.model, ModelSupervisor) else self.model
        return replace(self, model=model)

    def assess(self, case: Case) -> Assessment:
        """Judge every checkpoint and cap; after tampering, only what has a check, since the score is 0 anyway.

        Raises what the checks and the model raise.
        """
        settled, rest = self.checks.settle(case)
        if rest.empty or tampered(settled):
            return settled
        judged = self.model.judge(case, replace(rest, settled=settled))
        checkpoints = {j.checkpoint: j for j in (*settled.judgements, *judged.judgements)}
        caps = {j.cap: j for j in (*settled.caps, *judged.caps)}
        return judged.model_copy(
            update={
                "judgements": tuple(checkpoints[c.id] for c in case.rubric.checkpoints if c.id in checkpoints),
                "caps": tuple(caps[c.id] for c in case.rubric.caps if c.id in caps),
                "fatal": (*settled.fatal, *judged.fatal),
                "flags": tuple(dict.fromkeys((*settled.flags, *judged.flags))),
                "grader": " + ".join(filter(None, (settled.grader, judged.grader))),
            }
        )


def static_needs_model(task: Task) -> bool:
    """Whether some checkpoint or cap of a task has no check, as far as its files say without running them.

    False where only running the checks tells. Reads the hidden references, as the supervisor. Raises TaskError.
    """
    rubric = load_rubric(task, Reader.SUPERVISOR)
    marked = marked_lines(open_hidden(task, HiddenFolder.REFERENCES, Reader.SUPERVISOR))
    if marked is None:
        return False
    lines = {("checkpoint", c.id) for c in rubric.checkpoints} | {("cap", c.id) for c in rubric.caps}
    return not rubric.checkpoints or not lines <= marked
