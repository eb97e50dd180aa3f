"""Codex CLI (npm ``@openai/codex``): the real program, one thread of its own per attempt.

It speaks the responses wire to the gateway and keeps its thread as a rollout file below ``~/.codex/sessions``, which
grows while a turn runs; a later turn resumes the first thread that is there. Its own sandbox is off, since the
container is one. The message travels on standard input, whatever its length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.cleaning import parse_line
from pytest_uniclaw.agents.message import plain_text
from pytest_uniclaw.agents.rollout import read_rollouts
from pytest_uniclaw.agents.usage import has_tool_call, last_turn, text_of
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SettingsError
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox
from pytest_uniclaw.task import Task

VERSIONS = ("0.171.0", "0.120.0")
STREAM_IDLE_SECONDS = 900
"""How long codex waits for a byte: longer than the gateway, which gives up first and says why."""
REASON_CHARACTERS = 300
_PREPARE = """
set -eu
cd "$2/.codex"
mkdir -p skills
for skill in "$2"/skills/*/; do
    [ -f "${skill}SKILL.md" ] || continue
    if [ "$(head -c 3 "${skill}SKILL.md")" = --- ]; then
        ln -s "${skill%/}" "skills/$(basename "$skill")"
    else
        echo "There is a further skill; read its file before you use it: ${skill}SKILL.md" >> AGENTS.md
    fi
done
chown -hR "$1:" .
chmod 700 .
"""
"""Links the skills that codex lists by itself, which have a head with name and description, and names the others."""
RESUME = """
session=$(find "$HOME/.codex/sessions" -name 'rollout-*.jsonl' 2>/dev/null | sort | head -n 1)
session=${session%.jsonl}
"""
"""Shell: finds the first thread, empty where there is none. A thread's id ends the name of its file."""
_TURN = f"""
{RESUME}
exec codex exec --json --skip-git-repo-check ${{session:+resume "${{session: -36}}"}} - <"$0"
"""
"""Shell: continues the first thread, or begins one, with the message of the file ``$0``."""


@dataclass(frozen=True)
class CodexAgent:
    """The Codex CLI; ``version`` is one of :data:`VERSIONS`, ``image`` follows from it."""

    name: str = "codex"
    version: str = VERSIONS[0]
    image: str = ""
    memory: int = 2048 * MIB
    trusted: bool = False
    needs_model: bool = True

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise SettingsError(f"codex {self.version} is not supported; known releases: {', '.join(VERSIONS)}")
        if not self.image:
            object.__setattr__(self, "image", f"codex-{self.version}")

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write the configuration, readable by the executor alone, and show codex the skills."""
        if access is None:
            raise SettingsError("codex needs a model: pass --model=NAME, or --model=script for the task's own script")
        home, user = sandbox.paths.home, sandbox.user
        config = configuration(access).encode()
        sandbox.put([Entry(f"{home}/.codex/config.toml", content=config, mode=0o600, user=user)])
        done = sandbox.run(["bash", "-c", _PREPARE, "prepare", user, home])
        if done.exit_code != 0:
            raise InfraError(f"codex could not be set up: {done.output.decode('utf-8', 'replace').strip()[-500:]}")

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run one message in the attempt's thread."""
        path = f"{sandbox.paths.private}/message.txt"
        sandbox.put([Entry(path, content=plain_text(request.message).encode())])
        return sandbox.turn(
            ["bash", "-c", _TURN, path], environment=request.environment, limits=request.limits, pulse=request.pulse,
            log=request.log,
        )  # fmt: skip

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the folder of the rollout files."""
        return (f"{sandbox.paths.home}/.codex/sessions",)

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse the rollout files."""
        return read_rollouts(collected)

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff codex exited 0 and the last turn ends with an answer."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"codex was stopped: {completed.ending.value}")
        if completed.exit_code != 0:
            said = last_error(completed.output)
            return Finish(False, f"codex exited with {completed.exit_code}" + (f": {said}" if said else ""))
        turn = last_turn(records)
        if not turn:
            return Finish(False, "codex stored no reply" if records else "codex stored no session")
        last: Mapping[str, Any] = turn[-1]
        if last.get("role") != "assistant" or has_tool_call(dict(last)):
            return Finish(False, "codex's session ends without an answer")
        return Finish(True) if text_of(dict(last)) else Finish(False, "codex's last message is empty")


def configuration(
    access: ModelAccess, *, settings: Mapping[str, Any] | None = None, features: Mapping[str, bool] | None = None
) -> str:
    """Return codex's ``config.toml``: one provider, the gateway, which retries in its stead; nothing sent elsewhere.

    Every variable of the turn reaches the commands, also one whose name looks like a secret's: a task declares such.
    ``settings`` and ``features`` add to the defaults.
    """
    top: dict[str, Any] = {
        "model": access.model, "model_provider": "gateway", "approval_policy": "never",
        "sandbox_mode": "danger-full-access", "web_search": "disabled", "check_for_update_on_startup": False,
    }  # fmt: skip
    provider = {
        "name": "gateway", "base_url": access.base_url, "wire_api": "responses",
        "experimental_bearer_token": access.key, "request_max_retries": 0, "stream_max_retries": 0,
        "stream_idle_timeout_ms": STREAM_IDLE_SECONDS * 1000,
    }  # fmt: skip
    tables: dict[str, Mapping[str, Any]] = {
        "analytics": {"enabled": False},
        "features": {"plugins": False, "apps": False, **(features or {})},
        "shell_environment_policy": {"ignore_default_excludes": True},
        "model_providers.gateway": provider,
    }
    lines = [*_lines({**top, **(settings or {})}), *(line for table in tables.items() for line in _table(*table))]
    return "\n".join(lines) + "\n"


def reasoning(effort: str) -> dict[str, Any]:
    """Return the settings for a reasoning effort, none for an empty one.

    Codex sends an effort only to models that it takes for reasoning ones, and to those that it does not know when told.
    """
    return {"model_reasoning_effort": effort, "model_supports_reasoning_summaries": True} if effort else {}


def last_error(output: bytes) -> str:
    """Return on one line what codex said of an error last: in an event, else in its last line that is none."""
    plain = ""
    for line in reversed(output.splitlines()):
        try:
            event = parse_line(line) if line.startswith(b"{") else None
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("type") in ("turn.failed", "error"):
            error = event.get("error")
            said = error.get("message") if isinstance(error, dict) else event.get("message")
            return " ".join(said.split())[:REASON_CHARACTERS] if isinstance(said, str) else ""
        plain = plain or ("" if event else " ".join(line.decode("utf-8", "replace").split()))
    return plain[:REASON_CHARACTERS]


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n[{name}]"
    yield from _lines(values)


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield TOML lines; JSON's texts, numbers and truth values are TOML's too."""
    for key, value in values.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
