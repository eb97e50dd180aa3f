"""A role's read-only workspace: a container of the grader's image in which each tool call is one command.

Nothing in it can be written except its temporary folder, nothing outside it can be reached: no network, no rights, no
host folder. Its main process is the guardian, which only waits and buries what a call leaves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox import provision
from pytest_uniclaw.sandbox.archive import pack
from pytest_uniclaw.sandbox.base import MIB, Entry, WorkspaceJob
from pytest_uniclaw.sandbox.engine import Container, calls, image_reference
from pytest_uniclaw.sandbox.exec import follow, prepare, started
from pytest_uniclaw.sandbox.grading import GRADER, HARNESS, LIFETIME_GRACE_SECONDS, PIDS, SHM_BYTES
from pytest_uniclaw.sandbox.stream import HeadAndTail
from pytest_uniclaw.sandbox.turn import KILLED, raise_if_dying

ROOT = "/workspace"
TOOLS = "/opt/uniclaw/harness"
COMMAND = ("/usr/bin/python3", "-I", "-B", f"{TOOLS}/tools.py")
ENVIRONMENT = {"HOME": "/home/grader", "LANG": "C.UTF-8", "TZ": "UTC"}
OUTPUT_BYTES = 16 * MIB
KILL_SECONDS = 2.0
"""How much longer than its time a tool may take to say that it was too long, before it is killed inside."""
HOST_SECONDS = 5.0
"""How much longer than that the host waits."""
TICK_SECONDS = 1.0


class DockerWorkspace:
    """A running container, as :class:`~pytest_uniclaw.sandbox.base.Workspace` describes it."""

    def __init__(self, container: Container, job: WorkspaceJob) -> None:
        self.container, self.job = container, job

    def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float = 60.0) -> Mapping[str, Any]:
        """Run a tool as one command that reads its order from standard input."""
        last = time.monotonic() + seconds + KILL_SECONDS + HOST_SECONDS
        command = ["/usr/bin/timeout", "-k", "1", f"{seconds + KILL_SECONDS:.3f}", *COMMAND]
        output = HeadAndTail(OUTPUT_BYTES)
        prepared = prepare(
            self.container, command, user=f"{GRADER}:{GRADER}", cwd="/", environment=ENVIRONMENT, stdin=True
        )
        with started(prepared) as running:
            running.send(order_line(self.job, tool, arguments, seconds), seconds)
            late = follow(running, output.write, lambda now, _: Ending.DEADLINE if now > last else None, TICK_SECONDS)
            code = running.exit_code() if late is Ending.EXITED else None
        if late is Ending.EXITED and (code == KILLED or prepared.ended.code is None):
            raise_if_dying(self.container)
        return read_answer(output, code)


def start_workspace(container: Container, job: WorkspaceJob) -> None:
    """Create, fill and start a workspace's container; the caller removes it.

    Raises:
        EngineError: the engine refused.
        TaskError: a folder holds a link out of it or a special file.
        OSError: a folder cannot be read.
    """
    image = image_reference("grader")
    with calls(f"create a workspace from the image {image} (`uniclaw images` builds ours)"):
        host = container.api.create_host_config(
            **provision.limits(job.memory, PIDS, SHM_BYTES),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
        container.api.create_container(
            image,
            name=container.name,
            entrypoint=list(provision.GUARDIAN[:1]),
            command=list(provision.GUARDIAN[1:]),
            user=f"{GRADER}:{GRADER}",
            working_dir="/",
            host_config=host,
            environment=ENVIRONMENT,
            labels=provision.labels(job.owner, job.seconds + LIFETIME_GRACE_SECONDS),
        )
    with pack(payload(job)) as archive, calls("fill the workspace"):
        container.api.put_archive(container.name, "/", archive)
    with calls("start the workspace"):
        container.api.start(container.name)


def payload(job: WorkspaceJob) -> list[Entry]:
    """Return what goes in: everything root's and read-only by its modes. Raises ValueError for an unsafe name."""
    harness = [Entry(f"{TOOLS}/{file.name}", source=file) for file in sorted(HARNESS.glob("*.py"))]
    folders = [Entry(f"{ROOT}/{safe(name)}", source=source) for name, source in job.folders.items()]
    return [Entry(TOOLS, mode=0o755), *harness, Entry(ROOT, mode=0o755), *folders]


def safe(name: str) -> str:
    """Return a folder's name in the workspace. Raises ValueError when it would lead out of it."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or "\0" in name:
        raise ValueError(f"a name in a workspace must be relative and without '..': {name!r}")
    return "/".join(parts)


def order_line(job: WorkspaceJob, tool: str, arguments: Mapping[str, Any], seconds: float) -> bytes:
    """Return an order as the tools read it: JSON on one line. A tool gets three quarters of the memory."""
    order = {
        "tool": tool,
        "arguments": dict(arguments),
        "root": ROOT,
        "seconds": seconds,
        "memory": job.memory * 3 // 4,
    }
    return json.dumps(order).encode("ascii") + b"\n"


def read_answer(output: HeadAndTail, code: int | None) -> dict[str, Any]:
    """Return a tool's answer; one that died (``code``), did not end (None) or printed nonsense gives an error.

    The tool reads what an executor wrote, so its output is believed in its shape only as far as it is checked here.
    """
    if code == 0 and output.total <= OUTPUT_BYTES:
        try:
            answer = json.loads(output.value())
        except (ValueError, RecursionError):
            answer = None
        if is_answer(answer):
            return {key: answer[key] for key in ("text", "images", "next_offset", "error", "found") if key in answer}
    return {"text": "", "images": [], "next_offset": None, "error": failure(code)}


def is_answer(answer: Any) -> bool:
    """Tell whether a value has the shape of an answer."""
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        return False
    images, found, following = answer.get("images"), answer.get("found", []), answer.get("next_offset")
    return (
        isinstance(images, list) and all(is_image(image) for image in images)
        and isinstance(found, list) and all(isinstance(one, bool) for one in found)
        and (following is None or type(following) is int) and isinstance(answer.get("error"), str | None)
    )  # fmt: skip


def is_image(image: Any) -> bool:
    """Tell whether a value has the shape of an image."""
    return (
        isinstance(image, dict) and set(image) == {"mime", "data"}
        and all(isinstance(value, str) for value in image.values())
    )  # fmt: skip


def failure(code: int | None) -> str:
    """Say what became of a tool that gave no answer."""
    if code is None or code == 124:
        return "the tool did not end in time and was stopped"
    if code == KILLED:
        return "the tool was killed: it took too much memory or did not end in time"
    return f"the tool gave no usable answer (exit status {code})"


__all__ = ["DockerWorkspace", "order_line", "payload", "read_answer", "start_workspace"]
