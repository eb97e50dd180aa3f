"""OpenClaw (npm ``openclaw``): the real program, one session of its own per attempt, without its gateway daemon.

Two releases are supported. They take the same command and differ in where the session is kept: 2026.3.11, the paper's,
appends to ``sessions/chat.jsonl``, 2026.9.6 to an SQLite database. 2026.3.11 exits 0 whatever its model did, and does
not exit while a command that it put into the background runs; so a turn ends with the answer's last line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.message import is_long, message_file, note_message_file, plain_text
from pytest_uniclaw.agents.openclaw_endings import error_of, finish_of, last_object
from pytest_uniclaw.agents.openclaw_session import SESSION, read_sessions
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SettingsError
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox, TurnLimits
from pytest_uniclaw.task import Task

PAPER = "2026.3.11"
VERSIONS = (PAPER, "2026.9.6")
MEMORY = {PAPER: 2048 * MIB, "2026.9.6": 4096 * MIB}
PROVIDER = "gateway"
CONTEXT_TOKENS = 200_000
OUTPUT_TOKENS = 8192
"""OpenClaw's own values for a model that it does not know."""
MAX_MESSAGE_BYTES = 400_000
"""A longer message would leave a newer release too little of its context, and a turn that it gives up."""
PATIENCE_SECONDS = 900
"""How long a newer release waits for its model: longer than the gateway, which gives up first and says why."""
RETRIES = {"retry": {"enabled": False, "maxRetries": 0, "provider": {"maxRetries": 0}}}
"""``settings.json`` of the agent: the gateway retries in its stead."""
ENVIRONMENT = {
    "NODE_COMPILE_CACHE": "/opt/openclaw/cache",
    "OPENCLAW_PACKAGED_COMPILE_CACHE_RESPAWNED": "1",
    "OPENCLAW_NO_RESPAWN": "1",
    "OPENCLAW_DISABLE_BONJOUR": "1",
}
"""The modules that the image has compiled are taken, in the process that was started and not in a child of it."""
PREPARE = """
set -eu
for skill in "$2"/skills/*/; do
    file="${skill}SKILL.md"
    if [ -f "$file" ] && [ "$(head -c 3 "$file")" != --- ]; then
        name=$(basename "$skill")
        mkdir -p "$2/.openclaw/skills/$name"
        printf -- '---\\nname: %s\\ndescription: "A further skill; read its file before you use it: %s"\\n---\\n' \
            "$name" "$file" > "$2/.openclaw/skills/$name/SKILL.md"
    fi
done
chown -R "$1:" "$2/.openclaw"
chmod 700 "$2/.openclaw"
"""
"""OpenClaw lists the skills that have a head with name and description; for the others this writes one."""
_TURN = """
state="$HOME/.openclaw/agents/main/agent/openclaw-agent.sqlite"
if [ -f "$state" ]; then sqlite3 "$state" 'DELETE FROM auth_profile_state' >/dev/null 2>&1; fi
exec 3< <(exec openclaw "$@")
agent=$!
answer=
while IFS= read -r line <&3; do
    if [ -z "$answer" ] && [ "$line" != "{" ]; then printf '%s\\n' "$line"; continue; fi
    answer+="$line"$'\\n'
    [ "$line" != "}" ] || break
done
stuck=no
if [ "$line" = "}" ]; then
    for _ in {1..100}; do
        kill -0 "$agent" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$agent" 2>/dev/null && stuck=yes
fi
printf '%s' "$answer"
[ "$stuck" = no ] || exit 0
wait "$agent"
"""
"""The answer is one JSON object whose first and last lines are a brace each; who has not exited 10 seconds later waits
for a child. It is printed when OpenClaw has ended, so that no line of its log stands in the middle.

A newer release keeps in its database that a key was refused, and would not ask with it for a minute; that is for the
gateway to decide.
"""


@dataclass(frozen=True)
class OpenClawAgent:
    """OpenClaw with its own defaults; ``version`` is one of :data:`VERSIONS`; ``image`` and ``memory`` follow."""

    name: str = "openclaw"
    version: str = VERSIONS[0]
    image: str = ""
    memory: int = 0
    trusted: bool = False
    needs_model: bool = True

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise SettingsError(f"openclaw {self.version} is not supported; known releases: {', '.join(VERSIONS)}")
        if not self.image:
            object.__setattr__(self, "image", f"openclaw-{self.version}")
        if not self.memory:
            object.__setattr__(self, "memory", MEMORY[self.version])

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write the configuration, readable by the executor alone.

        A folder for memories tells OpenClaw that this workspace is in use: it does not begin by asking who it is.
        """
        if access is None:
            raise SettingsError(
                "openclaw needs a model: pass --model=NAME, or --model=script for the task's own script"
            )
        paths, user = sandbox.paths, sandbox.user
        config = configuration(access, self.version, paths.workspace, paths.skills)
        state = f"{paths.home}/.openclaw"
        sandbox.put([
            Entry(f"{state}/openclaw.json", content=_json(config), mode=0o600, user=user),
            Entry(f"{state}/agents/main/agent/settings.json", content=_json(RETRIES), mode=0o600, user=user),
            Entry(f"{paths.workspace}/memory", mode=0o755, user=user),
        ])  # fmt: skip
        done = sandbox.run(["bash", "-c", PREPARE, "prepare", user, paths.home])
        if done.exit_code != 0:
            raise InfraError(f"openclaw could not be set up: {done.output.decode('utf-8', 'replace').strip()[-500:]}")

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run one message in the session ``chat``; one that is too long for it is left in a file for the agent."""
        text = plain_text(request.message)
        entries: list[Entry] = []
        by_file = is_long(text) if self.version == PAPER else len(text.encode()) > MAX_MESSAGE_BYTES
        if by_file:
            entry, text = message_file(sandbox, text)
            entries.append(entry)
        words = f"--message={text}"
        if self.version != PAPER:
            path = f"{sandbox.paths.private}/message.txt"
            entries.append(Entry(path, content=text.encode()))
            words = f"--message-file={path}"
        if entries:
            sandbox.put(entries)
        command = [
            "agent", "--local", "--session-id", SESSION, "--timeout", str(seconds(request.limits)), "--json", words,
        ]  # fmt: skip
        completed = sandbox.turn(
            ["bash", "-c", _TURN, "openclaw-turn", *command], environment={**ENVIRONMENT, **request.environment},
            limits=request.limits, pulse=request.pulse, log=request.log,
        )  # fmt: skip
        if by_file:
            note_message_file(request.log)
        return completed

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the folder of the session files, or the database with the journal that belongs to it."""
        agent = f"{sandbox.paths.home}/.openclaw/agents/main"
        if self.version == PAPER:
            return (f"{agent}/sessions",)
        database = f"{agent}/agent/openclaw-agent.sqlite"
        return (database, f"{database}-wal")

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse the sessions, in either form."""
        return read_sessions(collected)

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff OpenClaw exited 0 and the last turn ends with a whole answer of a model that did not fail."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"openclaw was stopped: {completed.ending.value}")
        answer = last_object(completed.output)
        if completed.exit_code != 0:
            said = error_of(answer)
            return Finish(False, f"openclaw exited with {completed.exit_code}" + (f": {said}" if said else ""))
        meta = answer.get("meta")
        if isinstance(meta, dict) and meta.get("aborted") is True:
            return Finish(False, "openclaw broke its run off")
        return finish_of(records, "openclaw")


def seconds(limits: TurnLimits) -> int:
    """Return OpenClaw's own deadline: never before the turn's, which also counts the start of the program."""
    return max(1, math.ceil(limits.seconds + limits.max_waiting))


def configuration(access: ModelAccess, version: str, workspace: str, skills: str) -> dict[str, Any]:
    """Return ``openclaw.json``: one provider, the gateway; no browser of its own; nothing sent elsewhere."""
    model = {
        "id": access.model, "name": access.model, "input": ["text", "image"], "contextWindow": CONTEXT_TOKENS,
        "maxTokens": OUTPUT_TOKENS,
    }  # fmt: skip
    provider: dict[str, Any] = {
        "baseUrl": access.base_url, "apiKey": access.key, "api": "openai-completions", "models": [model],
    }  # fmt: skip
    reference = f"{PROVIDER}/{access.model}"
    defaults = {"workspace": workspace, "model": {"primary": reference}, "models": {reference: {}}}
    config: dict[str, Any] = {
        "models": {"mode": "replace", "providers": {PROVIDER: provider}},
        "agents": {"defaults": {**defaults, "userTimezone": "UTC"}},
        "gateway": {"mode": "local"},
        "browser": {"enabled": False},
        "update": {"checkOnStart": False},
        "discovery": {"mdns": {"mode": "off"}},
        "skills": {"load": {"extraDirs": [skills]}},
    }
    if version != PAPER:
        provider["timeoutSeconds"] = PATIENCE_SECONDS
        config["telemetry"] = {"enabled": False}
        config["models"]["catalogRefresh"] = {"enabled": False}
    return config


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()
