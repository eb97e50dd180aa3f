"""Anti-drift across turns: a deduction that was not made before, on evidence that has not changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from pytest_uniclaw.judge.base import Case, Evidence
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.verdict import SCORE_DIGITS, Assessment, Quote, Verdict

NEW_DEDUCTION = "drift:new_deduction:"
"""Prefix of the flags; the id of the checkpoint or cap follows."""


def new_deductions(case: Case, assessment: Assessment) -> tuple[str, ...]:
    """Return a flag for each checkpoint or cap that is judged worse than in the turn before on unchanged evidence.

    The evidence of a judgement are the files it cites; of one that cites none, all deliverables and exported state.
    """
    if not case.earlier:
        return ()
    before, after = case.earlier[-1], _hashes(case.evidence)
    earlier = _hashes(case.evidence.of_turn(case.turn - 1))
    worse = [*_lower(before, assessment, case.rubric), *_triggered(before, assessment)]
    return tuple(f"{NEW_DEDUCTION}{name}" for name, cited in worse if _unchanged(cited, earlier, after))


def _lower(before: Verdict, assessment: Assessment, rubric: Rubric) -> Iterable[tuple[str, tuple[Quote, ...]]]:
    earned = {line.id: line.earned for line in before.checkpoints}
    weights = {line.id: line.weight for line in rubric.checkpoints}
    for judgement in assessment.judgements:
        name = judgement.checkpoint
        now = round(weights.get(name, 0.0) * judgement.fraction, SCORE_DIGITS)
        if now < earned.get(name, 0.0):
            yield name, judgement.evidence


def _triggered(before: Verdict, assessment: Assessment) -> Iterable[tuple[str, tuple[Quote, ...]]]:
    free = {cap.id for cap in before.caps if not cap.triggered}
    for judgement in assessment.caps:
        if judgement.triggered and judgement.cap in free:
            yield judgement.cap, judgement.evidence


def _unchanged(cited: Iterable[Quote], earlier: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether the cited files are the same as before; the conversation always grows, so it does not count."""
    names = {quote.path.removeprefix("evidence/") for quote in cited}
    files = {name for name in names if name in after}
    if files:
        return all(earlier.get(name) == after[name] for name in files)
    return bool(after) and earlier == after


def _hashes(evidence: Evidence) -> dict[str, str]:
    """Return the SHA-256 of deliverables (as the manifest has them) and of exported state."""
    found = {}
    manifest = evidence.folder / "manifest.json"
    if manifest.is_file():
        files = json.loads(manifest.read_text("utf-8")).get("files", ())
        found = {f"results/{record['path']}": str(record["sha256"]) for record in files}
    for path in sorted(evidence.state.rglob("*")) if evidence.state.is_dir() else ():
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(evidence.folder).as_posix()
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
