"""Executor-time budgets: who is billed for which seconds.

Only the executor's own run is billed. Provisioning, services, collection, supervisor, user simulator and provider
waiting (Retry-After, cool-down) are not; waiting also extends the running turn, up to ``max_waiting_seconds``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task


@dataclass(frozen=True)
class Budget:
    """Limits of one attempt, in seconds of executor time and in follow-ups.

    ``silence_seconds`` ends a turn in which neither output nor a model call was seen for so long.
    """

    turn_seconds: float = 1200.0
    total_seconds: float = 1800.0
    followups: int = 2
    silence_seconds: float = 600.0
    max_waiting_seconds: float = 600.0

    @property
    def turns(self) -> int:
        """The largest number of turns: the first message and every follow-up."""
        return 1 + self.followups

    def turn_limit(self, spent: float) -> float:
        """Return the seconds the next turn may take after ``spent`` billed seconds; 0 when nothing is left."""
        return max(0.0, min(self.turn_seconds, self.total_seconds - spent))

    def exhausted(self, spent: float) -> bool:
        """Say whether less than one second of the total is left: too little to start another turn."""
        return self.total_seconds - spent < 1.0


def budget_of(task: Task, settings: Settings) -> Budget:
    """Return the limits of a task's attempts under the settings of a session."""
    if settings.protocol == "paper":
        return paper_budget(task.capability, settings.silence_seconds)
    return Budget(
        turn_seconds=settings.turn_seconds or task.turn_seconds,
        total_seconds=settings.total_seconds or task.total_seconds,
        followups=task.followups if settings.followups is None else settings.followups,
        silence_seconds=settings.silence_seconds,
    )


def paper_budget(capability: str, silence_seconds: float = 600.0) -> Budget:
    """Return the published limits (paper section 4.1).

    A turn and an attempt have 20 and 30 minutes, 30 and 45 for long context; two follow-ups may come.
    """
    minutes = (30, 45) if capability == "long_context" else (20, 30)
    return Budget(minutes[0] * 60.0, minutes[1] * 60.0, followups=2, silence_seconds=silence_seconds)


def billed_seconds(wall: float, waited: float, budget: Budget) -> float:
    """Return the executor time of a turn of ``wall`` seconds in which providers made it wait ``waited`` seconds."""
    return max(0.0, wall - min(waited, budget.max_waiting_seconds))
