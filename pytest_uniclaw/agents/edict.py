"""EDICT (github.com/cft0808/edict) on OpenClaw 2026.3.11: eleven agents and a board, one of whom speaks to the user.

Its instructions and its board's program are the user's own copy of the pinned commit (``edict_source``). In the sandbox
``edict_run`` runs a turn: it starts OpenClaw's gateway, follows the board and ends the gateway.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.edict_run import NOTE
from pytest_uniclaw.agents.edict_source import CENTRE, COMMIT, Edict, Member, load_edict
from pytest_uniclaw.agents.message import is_long, message_file, note_message_file, plain_text
from pytest_uniclaw.agents.openclaw import ENVIRONMENT, PAPER, PREPARE, RETRIES, configuration, seconds
from pytest_uniclaw.agents.openclaw_endings import finish_of
from pytest_uniclaw.agents.openclaw_session import read_agents
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SettingsError
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox
from pytest_uniclaw.sandbox.image_spec import EDICT_IMAGE
from pytest_uniclaw.settings import edict_source
from pytest_uniclaw.task import Task

VERSION = COMMIT[:7]
BOARD = "edict"
"""The board's folder in the workspace."""
_COMMAND_MARKS = ("/",)
"""OpenClaw's gateway, unlike a run without it, takes what begins so for a command, as for a new session."""
_LINKS = """
for home in "$2"/.openclaw/workspace-*; do
    ln -sfn "$3/scripts" "$home/scripts"; ln -sfn "$3/data" "$home/data"
done
chown -hR "$1:" "$2"/.openclaw "$3"
"""


@dataclass(frozen=True)
class EdictAgent:
    """EDICT at the pinned commit; ``source`` is the user's copy, by default what ``UNICLAW_EDICT_SRC`` names."""

    name: str = "openclaw_edict"
    version: str = VERSION
    image: str = EDICT_IMAGE
    memory: int = 2048 * MIB
    trusted: bool = False
    needs_model: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise SettingsError(f"openclaw_edict {self.version} is not supported; known: {VERSION}")
        object.__setattr__(self, "source", self.source or edict_source())
        load_edict(self.source)

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write the configuration, readable by the executor alone, the agents' workspaces and the board."""
        if access is None:
            raise SettingsError(f"{self.name} needs a model: pass --model=NAME, or --model=script for the task's own")
        edict = load_edict(self.source)
        paths, user = sandbox.paths, sandbox.user
        board = f"{paths.workspace}/{BOARD}"
        config = configuration(access, PAPER, paths.workspace, paths.skills)
        config = team_configuration(config, edict, paths.home, secrets.token_hex(16))
        entries = [Entry(f"{paths.home}/.openclaw/openclaw.json", content=_json(config), mode=0o600, user=user)]
        entries += [Entry(f"{board}/{name}", content=content, user=user) for name, content in edict.board]
        for member in edict.members:
            entries += _member_entries(member, paths.home, user)
        sandbox.put(entries)
        done = sandbox.run(["bash", "-c", PREPARE + _LINKS, "prepare", user, paths.home, board])
        if done.exit_code != 0:
            raise InfraError(f"EDICT could not be set up: {done.output.decode('utf-8', 'replace').strip()[-500:]}")

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run one message from taizi to taizi."""
        text = plain_text(request.message, _COMMAND_MARKS)
        by_file = is_long(text)
        private = sandbox.paths.private
        entries = [Entry(f"{private}/edict_run.py", content=Path(__file__).with_name("edict_run.py").read_bytes())]
        if by_file:
            entry, text = message_file(sandbox, text)
            entries.append(entry)
        sandbox.put([*entries, Entry(f"{private}/message.txt", content=text.encode())])
        command = [
            "python3", "-I", "-S", f"{private}/edict_run.py", f"{sandbox.paths.workspace}/{BOARD}",
            f"{private}/message.txt", str(seconds(request.limits)),
        ]  # fmt: skip
        completed = sandbox.turn(
            command, environment={**ENVIRONMENT, **request.environment}, limits=request.limits, pulse=request.pulse,
            log=request.log,
        )  # fmt: skip
        if by_file:
            note_message_file(request.log)
        return completed

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the folder of each agent's sessions, taizi's first."""
        agents = [member.id for member in load_edict(self.source).members]
        ordered = sorted(agents, key=lambda name: name != CENTRE)
        return tuple(f"{sandbox.paths.home}/.openclaw/agents/{name}/sessions" for name in ordered)

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse the sessions of all agents; taizi's, with the user, come last."""
        agents = [member.id for member in load_edict(self.source).members]
        ordered = sorted(agents, key=lambda name: name != CENTRE)
        return read_agents([(name, collected / str(at)) for at, name in enumerate(ordered)], CENTRE, NOTE)

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff the turn was run to its end and taizi's last turn ends with a whole answer."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"EDICT was stopped: {completed.ending.value}")
        if completed.exit_code != 0:
            last = completed.output.decode("utf-8", "replace").strip().rpartition("\n")[2][-200:]
            return Finish(False, f"EDICT exited with {completed.exit_code}" + (f": {last}" if last else ""))
        return finish_of(records, CENTRE)


def team_configuration(config: dict[str, Any], edict: Edict, home: str, token: str) -> dict[str, Any]:
    """Return OpenClaw's configuration with EDICT's agents, who see each other, and a gateway on the loopback alone."""
    ids = [member.id for member in edict.members]
    listed = [
        {
            "id": member.id, "workspace": f"{home}/.openclaw/workspace-{member.id}", "default": member.id == CENTRE,
            "subagents": {"allowAgents": list(member.may_call)},
        }
        for member in edict.members
    ]  # fmt: skip
    defaults = config["agents"]["defaults"] | {
        "sandbox": {"sessionToolsVisibility": "all"}, "heartbeat": {"every": "0m"},
    }  # fmt: skip
    return config | {
        "agents": {"defaults": defaults, "list": listed},
        "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True, "allow": ids}},
        "gateway": {
            "mode": "local", "bind": "loopback", "auth": {"mode": "token", "token": token},
            "controlUi": {"enabled": False},
        },
        "cron": {"enabled": False},
    }  # fmt: skip


def _member_entries(member: Member, home: str, user: str) -> Iterator[Entry]:
    """Yield an agent's workspace, one in use as OpenClaw sees it, and its settings."""
    workspace = f"{home}/.openclaw/workspace-{member.id}"
    yield Entry(f"{workspace}/memory", mode=0o755, user=user)
    for name, content in member.files:
        yield Entry(f"{workspace}/{name}", content=content, user=user)
    settings = f"{home}/.openclaw/agents/{member.id}/agent/settings.json"
    yield Entry(settings, content=_json(RETRIES), mode=0o600, user=user)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()
