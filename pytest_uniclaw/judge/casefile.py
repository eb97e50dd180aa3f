"""What a judge is told: its standing instructions, and the first message with the case."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from string import Template

from pytest_uniclaw.judge.base import Assignment, Case
from pytest_uniclaw.judge.conversation import enclose
from pytest_uniclaw.verdict import State, Verdict

REASON_CHARACTERS = 400
"""How much of an earlier reason, or of a check's message, is told."""
_PROMPTS = ("supervisor", "nonce", "holistic")


def system_prompt(nonce: str, instructions: str = "") -> str:
    """Return the judge's instructions; ``instructions`` are those of the task's author, ``nonce`` is empty for none."""
    parts = [prompt("supervisor")]
    if nonce:
        parts.append(Template(prompt("nonce")).substitute(nonce=nonce))
    if instructions.strip():
        parts.append(f"\n## Instructions of the task's author\n\n{instructions.strip()}\n")
    return "".join(parts)


def first_message(case: Case, assignment: Assignment) -> str:
    """Return the case: where the attempt stands, request, rubric, what to judge, what is decided, what was deducted.

    Whatever an executor can have had a hand in stands between delimiters.
    """
    sections = [
        ("The attempt", _standing(case)),
        ("The request", case.request),
        ("The rubric (references/eval_rule.md)", _rubric(case)),
        ("Judge these checkpoints", "\n".join(_checkpoints(assignment))),
        ("Judge these caps", "\n".join(_caps(assignment))),
        ("The score", prompt("holistic") if assignment.holistic else ""),
        ("Decided by checks; leave these out", "\n".join(_facts(assignment))),
        ("Deducted in earlier turns", "\n".join(_earlier(case, assignment))),
    ]
    return "\n\n".join(f"# {title}\n\n{text.strip()}" for title, text in sections if text.strip())


@lru_cache
def prompt(name: str) -> str:
    """Return one of the prompt files."""
    return resources.files("pytest_uniclaw").joinpath("judge", "prompts", f"{name}.md").read_text(encoding="utf-8")


@lru_cache
def prompt_digest() -> str:
    """Return 8 hex digits that change when a prompt does."""
    return hashlib.sha256("\0".join(map(prompt, _PROMPTS)).encode()).hexdigest()[:8]


def _standing(case: Case) -> str:
    ended = "finished the turn by its own word" if case.finished else "did not finish the turn: it was cut off"
    left = "No further message of the person can follow"
    if case.followups_left:
        left = f"At most {case.followups_left} further message(s) of the person can follow"
    return f"Turn {case.turn}. The agent {ended}. {left}. The threshold of a pass is {case.task.threshold:.2f}."


def _rubric(case: Case) -> str:
    return "\n\n".join(f"## {section.title}\n\n{section.text.strip()}" for section in case.rubric.sections)


def _checkpoints(assignment: Assignment) -> Iterator[str]:
    for line in assignment.checkpoints:
        yield f"- `{line.id}` (weight {line.weight:g}) {line.name}" + (f": {line.text}" if line.text else "")


def _caps(assignment: Assignment) -> Iterator[str]:
    for cap in assignment.caps:
        yield f"- `{cap.id}` (score at most {cap.value:g}) if: {cap.condition}"


def _facts(assignment: Assignment) -> Iterator[str]:
    settled = assignment.settled
    for judgement in settled.judgements:
        what = f"{judgement.state.value} ({judgement.fraction:g} of its weight)"
        yield _with_reason(f"- checkpoint `{judgement.checkpoint}`: {what}", judgement.rationale)
    for cap in settled.caps:
        yield _with_reason(f"- cap `{cap.cap}`: {'triggered' if cap.triggered else 'not triggered'}", cap.rationale)
    for reason in settled.fatal:
        yield _with_reason("- a fatal check failed", reason)


def _earlier(case: Case, assignment: Assignment) -> Iterator[str]:
    for turn, verdict in enumerate(case.earlier, 1):
        yield from _deductions(turn, verdict, assignment)


def _deductions(turn: int, verdict: Verdict, assignment: Assignment) -> Iterator[str]:
    wanted = {line.id for line in assignment.checkpoints}
    for line in verdict.checkpoints:
        if line.id in wanted and line.state is not State.MET:
            earned = f"{line.state.value}, {line.earned:g} of {line.weight:g}"
            yield _with_reason(f"- turn {turn}: checkpoint `{line.id}` {earned}", line.rationale)
    asked = {cap.id for cap in assignment.caps}
    for cap in verdict.caps:
        if cap.id in asked and cap.triggered:
            yield _with_reason(f"- turn {turn}: cap `{cap.id}` triggered", cap.rationale)
    if wanted and all(line.state is State.MET for line in verdict.checkpoints if line.id in wanted):
        yield f"- turn {turn}: nothing of these checkpoints"


def _with_reason(line: str, reason: str) -> str:
    text = " ".join(reason.split())[:REASON_CHARACTERS]
    return f"{line}\n{enclose(text)}" if text else line
