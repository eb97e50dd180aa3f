"""nanobot (PyPI ``nanobot-ai``): the real package, one session of its own per attempt.

Two releases are supported. They take the same configuration and command and differ in where the session file lies:
0.1.5 keeps ``<workspace>/sessions/chat.jsonl``, 0.3.5 ``~/.nanobot/sessions/<workspace id>/<base64 of the key>.jsonl``.
nanobot exits 0 whatever its model did, so the turn's ending is read from the session file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.message import is_long, message_file, note_message_file, plain_text
from pytest_uniclaw.agents.session_file import nearest, read_head
from pytest_uniclaw.agents.transcript import normalise_nanobot
from pytest_uniclaw.agents.usage import has_tool_call, last_turn, text_of
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SettingsError
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox
from pytest_uniclaw.task import Task

VERSIONS = ("0.1.5.post3", "0.3.5")
SESSION = "chat"
_SESSION_FILES = (f"{SESSION}.jsonl", "Y2hhdA.jsonl")
"""The session's file name in 0.1.5, and in 0.3.5 (``chat`` in unpadded base64)."""
LOOPBACK = "127.0.0.0/8"
"""nanobot refuses addresses of its own machine unless told: here they are the task's services."""
CONTEXT_TOKENS = 200_000
MAX_TOOL_ITERATIONS = 200
TOOL_SECONDS = 120
SHELL_VARIABLES = (
    "TZ", "UNICLAW_WORKSPACE", "UNICLAW_RESULTS", "UNICLAW_SOURCES", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT",
    "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "AGENT_BROWSER_HEADED",
    "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""What a command needs to find the task's folders and, where there is one, the desktop and the network."""
_COMMAND_MARKS = ("/", "!")
"""nanobot reads what begins so as one of its own commands; a blank message would open an interactive session."""
_LINK_SKILLS = """
set -eu
chown "$1:" "$2/.nanobot"; chmod 700 "$2/.nanobot"
cd "$3"
[ -e skills ] || { mkdir skills; chown "$1:" skills; }
for skill in "$2"/skills/*/; do
    [ -d "$skill" ] || continue
    name=$(basename "$skill")
    [ -e "skills/$name" ] || ln -s "${skill%/}" "skills/$name"
done
"""


@dataclass(frozen=True)
class NanobotAgent:
    """nanobot with upstream's settings; ``version`` is one of :data:`VERSIONS`, ``image`` follows from it."""

    name: str = "nanobot"
    version: str = VERSIONS[0]
    image: str = ""
    memory: int = 2048 * MIB
    trusted: bool = False
    needs_model: bool = True
    max_tool_iterations: int = MAX_TOOL_ITERATIONS

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise SettingsError(f"nanobot {self.version} is not supported; known releases: {', '.join(VERSIONS)}")
        if not self.image:
            object.__setattr__(self, "image", f"nanobot-{self.version}")

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write the configuration, readable by the executor alone, and link the skills into the workspace."""
        if access is None:
            raise SettingsError("nanobot needs a model: pass --model=NAME, or --model=script for the task's own script")
        paths = sandbox.paths
        content = json.dumps(self.configuration(access, paths.workspace, task.privacy), indent=1).encode()
        sandbox.put([Entry(_config(sandbox), content=content, mode=0o600, user=sandbox.user)])
        done = sandbox.run(["bash", "-c", _LINK_SKILLS, "link-skills", sandbox.user, paths.home, paths.workspace])
        if done.exit_code != 0:
            raise InfraError(f"nanobot could not be set up: {done.output.decode('utf-8', 'replace').strip()[-500:]}")

    def configuration(self, access: ModelAccess, workspace: str, declared: Sequence[str] = ()) -> dict[str, Any]:
        """Return nanobot's ``config.json``: one custom provider, upstream's defaults, a bound on tool iterations.

        ``declared`` are the names of the task's privacy values; its shell tool gets no variable that is not named.
        """
        defaults = {
            "provider": "custom", "model": access.model, "workspace": workspace, "timezone": "UTC",
            "contextWindowTokens": CONTEXT_TOKENS, "maxToolIterations": self.max_tool_iterations,
        }  # fmt: skip
        shell = {
            "enable": True, "timeout": TOOL_SECONDS, "pathAppend": "/usr/local/bin:/usr/bin:/bin",
            "allowedEnvKeys": [*SHELL_VARIABLES, *declared],
        }  # fmt: skip
        return {
            "providers": {"custom": {"apiKey": access.key, "apiBase": access.base_url}},
            "agents": {"defaults": defaults},
            "tools": {
                "restrictToWorkspace": False,
                "exec": shell,
                "web": {"search": {"provider": "duckduckgo"}},
                "ssrfWhitelist": [LOOPBACK],
            },
        }

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run one message in the session ``chat``; a message too long for an argument is left in a file."""
        message = plain_text(request.message, _COMMAND_MARKS)
        by_file = is_long(message)
        if by_file:
            entry, message = message_file(sandbox, message)
            sandbox.put([entry])
        command = [
            "nanobot", "agent", "--config", _config(sandbox), "--session", SESSION,
            "--workspace", sandbox.paths.workspace, "--no-markdown", f"--message={message}",
        ]  # fmt: skip
        completed = sandbox.turn(
            command, environment=request.environment, limits=request.limits, pulse=request.pulse, log=request.log
        )
        if by_file:
            note_message_file(request.log)
        return completed

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the folder that holds this release's session file."""
        if self.version == VERSIONS[0]:
            return (f"{sandbox.paths.workspace}/sessions",)
        return (f"{sandbox.paths.home}/.nanobot",)

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse the session file, wherever below ``collected`` this release put it."""
        path = nearest(collected, *_SESSION_FILES)
        return normalise_nanobot(read_head(path)) if path else ()

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff nanobot exited 0 and the last turn ends with an answer that is no stand-in for a model error."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"nanobot was stopped: {completed.ending.value}")
        turn = last_turn(records)
        if not turn:
            return Finish(False, "nanobot stored no reply" if records else "nanobot stored no session")
        last: Mapping[str, Any] = turn[-1]
        if last.get("role") != "assistant":
            return Finish(False, "nanobot's session ends without an answer")
        if last.get("stopReason") == "error":
            return Finish(False, "the model failed: nanobot stored its stand-in for an answer")
        if has_tool_call(dict(last)):
            return Finish(False, "nanobot's session ends in a tool call")
        if not text_of(dict(last)):
            return Finish(False, "nanobot's last message is empty")
        if completed.exit_code != 0:
            return Finish(False, f"nanobot exited with {completed.exit_code}")
        return Finish(True)


def _config(sandbox: Sandbox) -> str:
    return f"{sandbox.paths.home}/.nanobot/config.json"
