"""One agent in one real sandbox behind the real gateway, ready for turns: what the tests of agents share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from task_package import PUBLIC, build

from pytest_uniclaw.agents.base import Agent, Finish, Record
from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.agents.usage import messages, tool_usage
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.executor import Executor, TurnEvidence
from pytest_uniclaw.modelchoice import SCRIPT, ModelChoice
from pytest_uniclaw.models.client import GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import Call, Provider, Tuning
from pytest_uniclaw.provisioning import open_executor
from pytest_uniclaw.sandbox.base import Completed, Entry, TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.spec import AttemptSpec, RunContext
from pytest_uniclaw.task import load_task

RUN = f"test-{uuid.uuid4().hex[:8]}"
REAL_KEY = "sk-real-0f3a9d71c2"
"""The key of a provider that no test asks; it must be found nowhere in a container."""
LOOK_ROUND = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr -c [:print:] _"
"""What an executor's shell can see of the environments and command lines in its container."""
LIMITS = TurnLimits(240.0, 240.0)
SKILLS = {
    "skills/tables/SKILL.md": "---\nname: tables\ndescription: How to make tables.\n---\nUse a table.\n",
    "skills/bare/SKILL.md": "Use a bare table.",
}
"""One skill with a head, as most agents want it, and one without."""
HEARD = """#!/usr/bin/env python3
import fcntl, os, stat, sys, time

stream = int(sys.argv[1]) if sys.argv[1:] else 1
kind = os.fstat(stream).st_mode
unread = 0x541B if stat.S_ISFIFO(kind) else 0x5411  # FIONREAD of a pipe, SIOCOUTQ of a socket
while (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)) and any(fcntl.ioctl(stream, unread, bytes(4))):
    time.sleep(0.005)
"""
"""``heard [STREAM]``, a program of the containers: it ends when everything written to the stream has been read.

What a command of a script prints ends with it, where a test reads that. qwen-code 0.24.4 gives a command's output up as
soon as the command has ended, and is told that too early when another of its children ends in the same instant.
"""
TASK = PUBLIC + "skills: [tables, bare]\nuniclaw: {network: isolated, user: USER}\n"


@dataclass(frozen=True)
class Played:
    """A turn that was run and collected."""

    completed: Completed
    seen: TurnEvidence
    finish: Finish

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of the whole session."""
        return self.seen.records

    @property
    def own(self) -> bool:
        """Whether all of the records are what the agent stored, and none is rebuilt from the exchange log."""
        return "transcript_rebuilt" not in self.seen.flags

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of those records."""
        return messages(self.seen.records)

    @property
    def users(self) -> list[str]:
        """The texts of the user's messages."""
        return [text_of(message) for message in self.messages if message["role"] == "user"]

    @property
    def outputs(self) -> list[str]:
        """What the tools answered."""
        return [text_of(message) for message in self.messages if message["role"] == "toolResult"]

    @property
    def tools(self) -> Mapping[str, int]:
        """How often each tool was called."""
        counts: Mapping[str, int] = tool_usage(self.seen.records)["tool_counts"]
        return counts


@dataclass
class Seat:
    """An agent in its sandbox."""

    executor: Executor
    folder: Path

    def turn(self, number: int, message: str, limits: TurnLimits = LIMITS) -> Played:
        """Run one turn, bring its evidence out and ask the adapter whether it was finished."""
        completed = self.executor.turn(number, message, limits)
        seen = self.executor.collect(number)
        return Played(completed, seen, self.executor.agent.finish(completed, seen.records))

    def calls(self) -> list[Call]:
        """The ledger's rows so far."""
        return list(self.executor.calls())

    def requests(self) -> list[str]:
        """Everything that the model was told, one JSON text a message."""
        return [path.read_text("utf-8") for path in sorted(self.folder.rglob("exchange/executor/blobs/*"))]

    def told(self, text: str) -> bool:
        """Whether the model was told a text."""
        needle = json.dumps(text, ensure_ascii=False)[1:-1]
        return any(needle in request for request in self.requests())

    def run(self, *command: str) -> str:
        """What a command of the harness prints, run as root."""
        return self.executor.sandbox.run(command).output.decode("utf-8", "replace")

    def processes(self) -> list[str]:
        """User and command line of every process in the container."""
        return self.run("ps", "-eo", "user,args", "--no-headers").splitlines()

    def holds(self, text: str, *folders: str) -> bool:
        """Whether a file below the folders holds a text, or cannot be read."""
        return self.executor.sandbox.run(["grep", "-rqs", text, *folders]).exit_code != 1

    def put(self, name: str, content: bytes) -> None:
        """Leave a file of the executor's in its workspace."""
        sandbox = self.executor.sandbox
        sandbox.put([Entry(f"{sandbox.paths.workspace}/{name}", content=content, user=sandbox.user)])

    @property
    def container(self) -> Any:
        """The engine's container."""
        return self.executor.sandbox.container  # type: ignore[attr-defined]

    def cpu_seconds(self) -> float:
        """What the container has used of the processors so far."""
        stats = self.container.api.stats(self.container.name, stream=False, one_shot=True)
        return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message."""
    return "".join(block.get("text", "") for block in message["content"])


@contextmanager
def gateway_with_a_key(folder: Path) -> Iterator[GatewayProcess]:
    """A gateway that has a real provider's key and gives up soon."""
    real = Provider(name="real", base_url="http://127.0.0.1:9/v1", api_key=REAL_KEY)
    tuning = Tuning(tries=2, backoff_seconds=0.05, backoff_cap_seconds=0.1)
    with start_gateway(folder, [real], tuning=tuning) as process:
        yield process


@contextmanager
def seated(
    gateway: GatewayProcess, folder: Path, agent: str | Agent, script: str, *, user: str = "agent",
    model: str = "scripted", environment: Mapping[str, str] | None = None,
) -> Iterator[Seat]:  # fmt: skip
    """Provision an agent, or the one that ``--agent`` names so, on a scripted model called ``model``.

    ``environment`` is what the executor's shell gets of a task.
    """
    package = build(folder / "package", TASK.replace("USER", user), files={"script/model.yaml": script, **SKILLS})
    directory = folder / "runs" / "r" / "a1" / uuid.uuid4().hex[:6]
    directory.mkdir(parents=True)
    nobody: Any = None
    spec = AttemptSpec(
        task=load_task(package.yaml), agent=load_agent(agent) if isinstance(agent, str) else agent,
        provider=DockerProvider(), supervisor=nobody, simulator=nobody, budget=Budget(), directory=directory,
        model=ModelChoice(SCRIPT, model), gateway=gateway.address,
        run=RunContext(run=RUN, directory=folder / "runs" / "r"),
    )  # fmt: skip
    with open_executor(spec) as executor:
        executor.environment = {**executor.environment, **(environment or {})}
        executor.sandbox.put([Entry("/usr/local/bin/heard", content=HEARD.encode(), mode=0o755)])
        yield Seat(executor, directory)
