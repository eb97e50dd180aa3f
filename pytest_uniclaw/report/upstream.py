"""Write an attempt in upstream's run layout, so that its trace page and aggregation read our runs.

Statuses that upstream does not know are written as its nearest; ours stand under ``uniclaw``.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pytest_uniclaw.attempt import Attempt, Turn
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import write_bytes, write_json, write_text
from pytest_uniclaw.verdict import CheckpointScore, Verdict

NEAREST = {
    Status.INTEGRITY_VIOLATION: "fail",
    Status.UNJUDGED: "infra_error",
    Status.SIMULATOR_ERROR: "infra_error",
}
"""Upstream's nearest status for each of ours that it does not know."""
PROBE, SCREENSHOT = "state/desktop/probe.json", "state/desktop/screenshot.png"
PROBED = ("code", "chromium", "openclaw", "nanobot")
"""The programs that upstream's probe looks for."""


def upstream_status(status: Status) -> str:
    """Return the status in upstream's vocabulary."""
    return NEAREST.get(status, status.value)


def write_upstream(directory: Path, attempt: Attempt) -> None:
    """Write upstream's files for one attempt; ``directory`` is the ``p1-…`` folder. Raises OSError."""
    _copy_last_turn(directory, attempt)
    for turn in attempt.turns:
        name = "prompt.md" if turn.number == 1 else f"continuation_{turn.number - 1:02d}.md"
        write_text(directory / name, turn.message + "\n")
    write_json(directory / "score.json", score_record(attempt))
    write_json(directory / "meta.json", meta_record(directory, attempt))
    write_json(directory / "usage.json", usage_record(attempt))
    write_json(directory / "timeline.json", timeline_record(attempt))
    rows = [json.dumps(_trace_row(attempt, turn), ensure_ascii=False) for turn in attempt.turns if turn.verdict]
    write_text(directory / "supervision_trace.jsonl", "".join(f"{row}\n" for row in rows))
    write_json(directory.parent / "summary.json", summary_record(directory, attempt))


def score_record(attempt: Attempt) -> dict[str, Any]:
    """Return ``score.json``; ``checkpoints`` is what upstream's page counts and its runner never writes."""
    verdict = attempt.best_verdict
    blocked = attempt.status in {Status.INFRA_ERROR, Status.RATE_LIMIT, Status.PRE_EXEC_FAILED, Status.UNJUDGED}
    tampered = attempt.status is Status.INTEGRITY_VIOLATION
    decision = "fail" if tampered or not verdict else verdict.decision.value
    state = "terminal_failure" if tampered else verdict.attempt_state.value if verdict else "incomplete"
    return {
        "schema_version": "clawbench.score/v1",
        "success_threshold": attempt.threshold,
        "overall_score": attempt.score,
        "score_cap": min([1.0, *(c.value for c in verdict.caps if c.triggered)]) if verdict else 1.0,
        "capped_score": attempt.score,
        "verdict": "infra_error" if blocked and not verdict else decision,
        "attempt_state": state,
        "recoverable": bool(verdict and verdict.recoverable and not tampered),
        "rationale": attempt.reason[:2000],
        **_opinion(verdict),
        "best_supervisor_score": attempt.score,
        "latest_completed_supervisor_score": attempt.last_score,
        "executor_completed_ever": any(t.finished for t in attempt.turns),
        "followups_used": max(0, len(attempt.turns) - 1),
        "checkpoints": [_checkpoint(c) for c in verdict.checkpoints] if verdict else [],
        "uniclaw": {"status": attempt.status.value, "flags": list(attempt.flags), "protocol": attempt.protocol},
    }


def meta_record(directory: Path, attempt: Attempt) -> dict[str, Any]:
    """Return ``meta.json``."""
    return {
        "schema_version": "clawbench.meta/v1",
        "taskId": attempt.task_id, "backend": attempt.agent, "model": attempt.model, "imageModel": "",
        "stageType": "primary", "stageId": "primary", "stageIndex": 1, "promptKind": "primary",
        "outputs": sorted({f.path for t in attempt.turns[-1:] for f in t.manifest.files}),
        "checkpoints": [],
        "runtimeMs": round(attempt.executor_seconds * 1000), "wallClockMs": round(attempt.wall_seconds * 1000),
        "agentExitCode": attempt.turns[-1].exit_code if attempt.turns else None,
        "everExecutorCompleted": any(t.finished for t in attempt.turns),
        "continuations": [
            {"index": t.number - 1, "file": f"continuation_{t.number - 1:02d}.md", "safeUserFeedback": t.message}
            for t in attempt.turns[1:]
        ],
        "outDir": directory.name,
    }  # fmt: skip


def summary_record(directory: Path, attempt: Attempt) -> dict[str, Any]:
    """Return the task's ``summary.json``, which upstream's aggregation globs for."""
    status = upstream_status(attempt.status)
    return {
        "schema_version": "clawbench.summary/v1",
        "taskId": attempt.task_id, "backend": attempt.agent, "model": attempt.model, "imageModel": "",
        "evaluationMode": "uniclaw", "modelSlug": directory.parent.parent.parent.name,
        "attempts": [
            {
                "attempt": 1, "promptKind": "primary", "stageType": "primary", "stageId": "primary", "stageIndex": 1,
                "outDir": directory.name, "runtimeMs": round(attempt.executor_seconds * 1000),
                "score": score_record(attempt), "terminalDecision": attempt.status.value,
            }
        ],
        "resolvedAttempt": 1 if attempt.status is Status.PASS else None,
        "rawFinalScore": attempt.score, "finalScore": attempt.score, "passed": attempt.status is Status.PASS,
        "finalStatus": status, "infraError": status == "infra_error", "rateLimit": status == "rate_limit",
        "stopReason": attempt.reason, "uniclaw": {"status": attempt.status.value, "number": attempt.number},
    }  # fmt: skip


def usage_record(attempt: Attempt) -> dict[str, Any]:
    """Return ``usage.json``; unknown counters stay null, and ours say ``unknown`` where a cost is."""
    roles = {
        u.role: {
            "prompt_tokens": u.input_tokens, "completion_tokens": u.output_tokens,
            "cache_read_tokens": u.cache_read_tokens, "cache_write_tokens": u.cache_write_tokens,
            "estimated_cost": u.cost_usd, "call_count": u.calls,
        }
        for u in attempt.usage
    }  # fmt: skip
    costs = [u.cost_usd for u in attempt.usage]
    total = sum(cost for cost in costs if cost is not None) if None not in costs else None
    ours = {
        u.role: {"cost_usd": _cost(u.cost_usd), "tries": u.tries, "waited_seconds": u.waited_seconds}
        for u in attempt.usage
    }
    return {
        "available": bool(roles), "source": dict.fromkeys(roles, "gateway"), "summary": roles,
        "uniclaw": {"roles": ours, "cost_usd": _cost(total)},
    }  # fmt: skip


def _cost(usd: float | None) -> float | str:
    return "unknown" if usd is None else round(usd, 10)


def timeline_record(attempt: Attempt) -> dict[str, Any]:
    """Return ``timeline.json`` with one executor phase per turn, in epoch milliseconds."""
    phases = [
        {
            "kind": "executor", "name": f"turn {t.number}", "cycle": t.number, "start_ms": _epoch_ms(t.started),
            "end_ms": _epoch_ms(t.started) + round(t.wall_seconds * 1000),
        }
        for t in attempt.turns
    ]  # fmt: skip
    return {
        "version": 1, "attempt_started_ms": _epoch_ms(attempt.started), "attempt_ended_ms": _epoch_ms(attempt.ended),
        "in_progress": False, "phases": phases,
    }  # fmt: skip


class ProbedProcess(BaseModel):
    """A process that the probe saw."""

    pid: int
    command: str


class ProbedWindow(BaseModel):
    """A window that the probe saw."""

    id: str
    pid: int
    title: str


class Probed(BaseModel):
    """What is read of ``probe.json``."""

    processes: list[ProbedProcess]
    windows: list[ProbedWindow]


def probe_record(evidence: Path, turn: Turn) -> dict[str, Any] | None:
    """Return ``runtime_probe.json``: windows and processes as lines, as upstream's tools print them.

    None where there was no probe, or where its file is none: an executor that is root can replace it.
    """
    try:
        seen = Probed.model_validate_json((evidence / PROBE).read_bytes())
    except (OSError, ValidationError):
        return None
    lines = [f"{row.pid} {row.command}" for row in seen.processes]
    return {
        "windows": [f"{window.id} {window.pid} {window.title}" for window in seen.windows],
        "processes": {name: [line for line in lines if name in line] for name in PROBED},
        "result_files": [file.path for file in turn.manifest.files],
    }


def _copy_last_turn(directory: Path, attempt: Attempt) -> None:
    """Show the last turn's evidence where upstream's page looks; ``result`` is a link of ours into the turn."""
    if not attempt.turns:
        return
    evidence = directory / attempt.turns[-1].directory / "evidence"
    for name in ("transcript.jsonl", "tool_usage.json"):
        if (evidence / name).is_file():
            write_bytes(directory / name, (evidence / name).read_bytes())
    if probed := probe_record(evidence, attempt.turns[-1]):
        write_json(directory / "runtime_probe.json", probed)
    if (evidence / SCREENSHOT).is_file():
        write_bytes(directory / "runtime_probe_desktop.png", (evidence / SCREENSHOT).read_bytes())
    link = directory / "result"
    if not link.is_symlink():
        link.symlink_to(f"{attempt.turns[-1].directory}/evidence/results", target_is_directory=True)


def _trace_row(attempt: Attempt, turn: Turn) -> dict[str, Any]:
    verdict = turn.verdict
    if verdict is None:
        return {}
    return {
        "evaluation_index": turn.number, "timestamp_ms": _epoch_ms(turn.started), "verdict": verdict.decision.value,
        "attempt_state": verdict.attempt_state.value, "recoverable": verdict.recoverable, "score": verdict.score,
        "rationale": "; ".join(f"{c.id}: {c.rationale}" for c in verdict.checkpoints if c.rationale)[:2000],
        **_opinion(verdict),
        "safe_user_feedback": turn.follow_up.message if turn.follow_up else "", "transport": verdict.grader,
    }  # fmt: skip


def _opinion(verdict: Verdict | None) -> dict[str, Any]:
    """Return the judge's own decision in upstream's fields; a verdict of checks alone has none."""
    opinion = verdict.opinion if verdict else None
    if verdict is None or opinion is None:
        return {}
    return {
        "rationale": opinion.rationale[:2000], "confidence": opinion.confidence,
        "missing_artifacts": list(opinion.missing_artifacts[:10]), "guidance_tags": list(opinion.guidance_tags),
        "supervisor_verdict_raw": opinion.verdict, "supervisor_attempt_state_raw": opinion.attempt_state,
        "supervisor_score_raw": opinion.score,
    }  # fmt: skip


def _checkpoint(line: CheckpointScore) -> dict[str, Any]:
    return {"passed": line.earned >= line.weight, **line.model_dump(mode="json")}


def _epoch_ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)
