"""One attempt in the Agent Trajectory Interchange Format, ATIF-v1.7 (the Harbor project's RFC 0001).

A step is a user message, or an answer of the model with its tool calls and what these returned. A sub-agent's steps are
an embedded trajectory of its own. Scores stand in ``extra.uniclaw``; rationales and the rubric are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pytest_uniclaw.attempt import Attempt, Usage

VERSION = "ATIF-v1.7"
Json = dict[str, Any]
Record = Mapping[str, Any]
_IMAGE = re.compile(r"\[image: (inline_images/[0-9a-f]{16}\.(png|jpg|gif|webp))\]")
NO_IMAGES: Mapping[str, str] = {}
_MEDIA = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def trajectory(attempt: Attempt, records: Sequence[Record], images: Mapping[str, str] = NO_IMAGES) -> Json | None:
    """Return the trajectory, or None for an attempt without a conversation.

    ``records`` are normalised transcript records of the whole attempt; ``images`` maps the names of the images
    that there are, ``inline_images/<hash>.<ext>``, to their paths: a text that names another one is just a text.
    """
    own, others = _by_agent(records)
    steps = list(_steps(own, images))
    if not steps:
        return None
    agent: Json = {"name": attempt.agent, "version": _release(attempt)}
    agent |= {"model_name": attempt.model} if attempt.model else {}
    found: Json = {
        "schema_version": VERSION, "session_id": attempt.attempt_id, "trajectory_id": attempt.attempt_id,
        "agent": agent, "steps": steps, "final_metrics": _metrics(attempt.usage, len(steps)),
        "extra": {"uniclaw": _outcome(attempt)},
    }  # fmt: skip
    embedded = [
        {"schema_version": VERSION, "trajectory_id": name, "agent": agent, "steps": inner}
        for name, messages in others.items() if (inner := list(_steps(messages, images)))
    ]  # fmt: skip
    return found | ({"subagent_trajectories": embedded} if embedded else {})


def _by_agent(records: Iterable[Record]) -> tuple[list[Record], dict[str, list[Record]]]:
    """Return the message records of the agent itself, and those of its sub-agents by name."""
    own: list[Record] = []
    others: dict[str, list[Record]] = {}
    for record in records:
        if record.get("type") == "message" and isinstance(record.get("message"), dict):
            name = record.get("agentId")
            (others.setdefault(str(name), []) if name else own).append(record)
    return own, others


def _steps(records: Iterable[Record], images: Mapping[str, str]) -> Iterator[Json]:
    """Yield the steps; what a tool returned belongs to the last answer before it."""
    step: Json = {}
    number = 0
    for record in records:
        message = record["message"]
        if message.get("role") == "toolResult":
            if step.get("source") == "agent":
                _observe(step, message, images)
            continue
        if step:
            yield step
        number += 1
        step = {"step_id": number} | _time(record) | _said(message, images)
    if step:
        yield step


def _said(message: Mapping[str, Any], images: Mapping[str, str]) -> Json:
    blocks = _blocks(message)
    text = _content(blocks, images)
    if message.get("role") == "user":
        return {"source": "user", "message": text}
    found: Json = {"source": "agent", "message": text}
    if thoughts := [str(block.get("thinking", "")) for block in blocks if block.get("type") == "thinking"]:
        found["reasoning_content"] = "\n".join(thoughts)
    if calls := [block for block in blocks if block.get("type") == "toolCall"]:
        found["tool_calls"] = [_call(block) for block in calls]
    return found


def _call(block: Mapping[str, Any]) -> Json:
    given = block.get("arguments")
    arguments = given if isinstance(given, dict) else {"value": given}
    return {
        "tool_call_id": str(block.get("id", "")), "function_name": str(block.get("name", "")), "arguments": arguments
    }  # fmt: skip


def _observe(step: Json, message: Mapping[str, Any], images: Mapping[str, str]) -> None:
    """Add a tool's result to the step whose call it answers; one that answers no call of the step names none."""
    answered = str(message.get("toolCallId", ""))
    known = answered in {call["tool_call_id"] for call in step.get("tool_calls", ())}
    result: Json = {"source_call_id": answered} if known else {}
    result["content"] = _content(_blocks(message), images)
    step.setdefault("observation", {"results": []})["results"].append(result)


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _content(blocks: Iterable[Mapping[str, Any]], images: Mapping[str, str]) -> str | list[Json]:
    """Return the text of blocks, or text and images as parts where there are images."""
    parts = [_part(str(block.get("text", "")), images) for block in blocks if block.get("type") == "text"]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(text: str, images: Mapping[str, str]) -> Json:
    image = _IMAGE.fullmatch(text)
    if image is None or image[1] not in images:
        return {"type": "text", "text": text}
    return {"type": "image", "source": {"media_type": _MEDIA[image[2]], "path": images[image[1]]}}


def _time(record: Record) -> Json:
    """Return the time of a record, nothing where it has none that ISO 8601 knows."""
    text = str(record.get("timestamp") or "")
    try:
        return {"timestamp": datetime.fromisoformat(text).isoformat()}
    except ValueError:
        return {}


def _release(attempt: Attempt) -> str:
    """Return the agent's release; behind it, parted by a blank, may stand a digest of its table."""
    return attempt.digests.get("agent", "").rpartition("@")[2].partition(" ")[0] or "unknown"


def _metrics(usage: Sequence[Usage], steps: int) -> Json:
    """Return the executor's totals; a figure that is unknown is left out, for 0 would be a claim."""
    own = next((one for one in usage if one.role == "executor"), None)
    totals = {
        "total_prompt_tokens": own.input_tokens, "total_completion_tokens": own.output_tokens,
        "total_cached_tokens": own.cache_read_tokens, "total_cost_usd": own.cost_usd,
    } if own else {}  # fmt: skip
    return {name: value for name, value in totals.items() if value is not None} | {"total_steps": steps}


def _outcome(attempt: Attempt) -> Json:
    return {
        "task_id": attempt.task_id, "capability": attempt.capability, "language": attempt.language,
        "status": attempt.status.value, "score": attempt.score, "threshold": attempt.threshold,
        "turns": len(attempt.turns), "protocol": attempt.protocol, "flags": list(attempt.flags),
    }  # fmt: skip
