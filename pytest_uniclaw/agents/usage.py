"""What can be read off a normalised transcript: the last turn, the final answer, the tools that were used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean

_SHELL_TOOLS = frozenset({"bash", "exec", "exec_command", "run_shell_command", "run_terminal_cmd", "shell", "terminal"})
_SKILL = re.compile(r"""(?<![\w.-])skills/([A-Za-z0-9][\w.-]{0,99})(?=[/\s"'\\]|$)""")
"""A path into a skill's folder, wherever an agent keeps them."""
_BROWSER_COMMAND = re.compile(r"(?<![\w/.-])agent-browser\s+([^\n;|&]{1,500})")
_OPTIONS_WITH_VALUE = frozenset({"--session", "--profile", "--headers", "--executable-path", "--proxy", "--cdp", "-p"})


def messages(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the ``message`` parts of the records that are messages."""
    found = (record.get("message") for record in records if record.get("type") == "message")
    return [message for message in found if isinstance(message, dict)]


def last_turn(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the messages after the last user message; those of sub-agents are none."""
    turn: list[dict[str, Any]] = []
    for message in reversed(messages([record for record in records if "agentId" not in record])):
        if message.get("role") == "user":
            break
        turn.append(message)
    return turn[::-1]


def text_of(message: dict[str, Any]) -> str:
    """Return the text blocks of a message, joined by newlines."""
    blocks = message.get("content")
    found = blocks if isinstance(blocks, list) else []
    texts = (block.get("text") for block in found if isinstance(block, dict) and block.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def has_tool_call(message: dict[str, Any]) -> bool:
    """Whether a message calls a tool."""
    blocks = message.get("content")
    return isinstance(blocks, list) and any(isinstance(b, dict) and b.get("type") == "toolCall" for b in blocks)


def final_answer(records: Sequence[Record]) -> str:
    """Return the last words of the assistant in the last turn, an empty string when it said nothing.

    A stand-in for a failed model call (``stopReason: error``) is no answer.
    """
    for message in reversed(last_turn(records)):
        if message.get("role") == "assistant" and message.get("stopReason") != "error" and text_of(message):
            return text_of(message)
    return ""


def call_ids(records: Sequence[Record]) -> set[str]:
    """Return the ids of the tool calls of all agents; a call that sub-agents' sessions repeat counts once."""
    blocks = (block for message in messages(records) for block in message.get("content") or ())
    return {str(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"}


def tool_usage(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise tool calls as upstream's ``tool_usage.json`` does, with the skills that were consulted beside."""
    calls = list(_tool_calls(records))
    skills = Counter(skill for call in calls for skill in _skills(call))
    counts = Counter(call["name"] for call in calls)
    actions = Counter(action for call in calls for action in _browser_actions(call))
    return {
        "tool_names": sorted(counts),
        "tool_counts": dict(sorted(counts.items())),
        "browser_actions": sorted(actions),
        "browser_action_counts": dict(sorted(actions.items())),
        "browser_used": bool(actions) or "browser" in counts,
        "exec_used": any(name in _SHELL_TOOLS for name in counts),
        "skills": sorted(skills),
        "skill_counts": dict(sorted(skills.items())),
        "tool_calls": calls,
    }


def _tool_calls(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for record in records:
        message = record.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == "toolCall":
                yield {
                    "agentId": str(clean(record.get("agentId", ""))),
                    "name": str(clean(block.get("name", ""))),
                    "arguments": clean(block.get("arguments", {})),
                    "timestamp": clean(record.get("timestamp", "")),
                }


def _skills(call: dict[str, Any]) -> set[str]:
    """Name the skills whose folders a call names in its arguments."""
    return {match[1] for text in _texts(call) for match in _SKILL.finditer(text)}


def _texts(call: dict[str, Any]) -> list[str]:
    """Return the texts among a call's arguments; a list of words is one."""
    arguments = call["arguments"]
    values = arguments.values() if isinstance(arguments, dict) else ()
    return [v if isinstance(v, str) else " ".join(map(str, v)) for v in values if isinstance(v, str | list)]


def _browser_actions(call: dict[str, Any]) -> list[str]:
    """Name the agent-browser commands in a shell call, or the action of a browser tool."""
    arguments = call["arguments"]
    if not isinstance(arguments, dict):
        return []
    if call["name"] == "browser":
        return [str(arguments.get("action", ""))] if arguments.get("action") else []
    if call["name"] not in _SHELL_TOOLS:
        return []
    found = (_first_action(match[1].split()) for text in _texts(call) for match in _BROWSER_COMMAND.finditer(text))
    return [action for action in found if action]


def _first_action(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor an option's value."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _OPTIONS_WITH_VALUE
        else:
            return word if re.fullmatch(r"[a-z][a-z-]{0,30}", word) else ""
    return ""
