"""Runs one turn of EDICT inside the sandbox: standard library only, started by the adapter as the executor's user.

OpenClaw's gateway lives as long as this program. The message goes to taizi, who answers by himself or puts a task on
the board. Then whoever the board says has to act is asked, one after the other, until the task has ended or nobody
moves it any more, and taizi reports. What this program says begins with :data:`NOTE`, so that it is not taken for the
user's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTE = "[edict] "
CENTRE = "taizi"
PORT = 18789
START_SECONDS = 180.0
QUIET_SECONDS = 2.0
"""How long all sessions have to stand at an answer: one that has answered may be called by the next."""
STALE_SECONDS = 300.0
"""A session that nothing was added to for so long is not waited for."""
TAIL_BYTES = 4_000_000
"""How much of a session's end is looked at; a last message is rarely longer."""
MOST_STEPS = 24
FIELD_CHARACTERS = 1_000
OUTPUT_CHARACTERS = 16_000
"""How much of the board is told: an argument of a program holds 128 KiB, a character takes up to four bytes."""
ENDED = frozenset({"Done", "Cancelled", "Blocked"})
ACTORS = {
    "Pending": "taizi", "Taizi": "taizi", "Zhongshu": "zhongshu", "Menxia": "menxia", "Assigned": "shangshu",
    "Next": "shangshu", "Doing": "shangshu", "Review": "shangshu", "PendingConfirm": "menxia",
}  # fmt: skip
"""Who acts in a state of the board, unless the task says it."""
MINISTRIES = {
    "礼部": "libu", "户部": "hubu", "兵部": "bingbu", "刑部": "xingbu", "工部": "gongbu", "吏部": "libu_hr",
}  # fmt: skip
AT_WORK = frozenset({"Doing", "Next"})


@dataclass(frozen=True)
class Place:
    """Where things are, and when the turn has to be over (monotonic seconds)."""

    home: Path
    board: Path
    deadline: float

    def left(self) -> float:
        """Seconds that are left."""
        return max(1.0, self.deadline - time.monotonic())


def tasks_of(board: Path) -> dict[str, dict[str, Any]]:
    """Return the tasks on the board by id, newest first; none where it cannot be read."""
    try:
        listed = json.loads((board / "data" / "tasks_source.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    found = listed if isinstance(listed, list) else []
    return {str(task.get("id")): task for task in found if isinstance(task, dict)}


def actor_of(task: dict[str, Any]) -> str:
    """Return who has to act on a task, empty where nobody has."""
    state = str(task.get("state"))
    if state in ENDED:
        return ""
    pending = task.get("pending_confirm")
    if state == "PendingConfirm" and isinstance(pending, dict) and pending.get("confirm_by"):
        return told(pending, "confirm_by")
    if state in AT_WORK and task.get("org") in MINISTRIES:
        return MINISTRIES[str(task["org"])]
    return ACTORS.get(state, "")


def position_of(task: dict[str, Any]) -> str:
    """Return what changes when a task moves; reports on its progress are no move."""
    return json.dumps(
        [task.get("state"), task.get("org"), task.get("output"), task.get("pending_confirm")], default=str
    )


def told(task: dict[str, Any], name: str, most: int = FIELD_CHARACTERS) -> str:
    """Return a field of a task as an argument can hold it: valid text of at most ``most`` characters."""
    text = str(task.get(name) or "").replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def request_text(task: dict[str, Any], message: str) -> str:
    """Return what an agent is told whose turn it is."""
    return (
        f"{NOTE}任务 {told(task, 'id')}「{told(task, 'title')}」现在由你处理。"
        f"当前状态：{told(task, 'state')}，所属：{told(task, 'org')}。"
        "请按你的职责完成这一步，用看板命令更新状态，然后说明结果。\n\n"
        f"皇上的原话：\n{message}"
    )


def report_text(task: dict[str, Any]) -> str:
    """Return what taizi is told in the end."""
    return (
        f"{NOTE}任务 {told(task, 'id')}「{told(task, 'title')}」目前状态：{told(task, 'state')}，"
        f"产出：{told(task, 'output', OUTPUT_CHARACTERS) or '无'}。"
        "请核对结果，直接向皇上回奏最终答复，用皇上原话的语言，不要再调用其他部门。"
    )


def say(text: str) -> None:
    """Write a line into the turn's log."""
    sys.stdout.write(f"{NOTE}{text}\n")
    sys.stdout.flush()


def ask(place: Place, agent: str, text: str) -> int:
    """Run one message with an agent to the end of its run; print what OpenClaw says, return its exit status."""
    seconds = str(int(place.left()))
    command = ["openclaw", "agent", "--agent", agent, "--timeout", seconds, "--json", f"--message={text}"]
    say(f"{agent} is asked")
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def follow(place: Place, message: str) -> int:
    """Run the turn; return the exit status of taizi's last answer."""
    known = {name: position_of(task) for name, task in tasks_of(place.board).items()}
    status = ask(place, CENTRE, message)
    wait_for_quiet(place)
    moved = [task for name, task in tasks_of(place.board).items() if known.get(name) != position_of(task)]
    if not moved or status != 0:
        return status
    task = drive(place, str(moved[0].get("id")), message)
    status = ask(place, CENTRE, report_text(task))
    wait_for_quiet(place)
    return status


def drive(place: Place, name: str, message: str) -> dict[str, Any]:
    """Ask whoever has to act on a task until it has ended or two in a row did not move it; return the task."""
    task = tasks_of(place.board).get(name, {})
    still = 0
    for _ in range(MOST_STEPS):
        agent = actor_of(task)
        if not agent or still == 2 or time.monotonic() > place.deadline:
            break
        ask(place, agent, request_text(task, message))
        wait_for_quiet(place)
        before, task = task, tasks_of(place.board).get(name, {})
        still = still + 1 if position_of(task) == position_of(before) else 0
    return task


def wait_for_quiet(place: Place) -> None:
    """Wait until no agent works: agents call each other, and are called back, beyond the run that was asked for."""
    since = time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < place.deadline:
        if any(is_working(path) for path in place.home.glob(".openclaw/agents/*/sessions/*.jsonl")):
            since = time.monotonic()
        time.sleep(0.4)


def is_working(path: Path) -> bool:
    """Whether a session waits for its model or a tool: its last message is no answer."""
    try:
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            return False
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            last = last_message(file.read().splitlines())
    except OSError:
        return False
    return bool(last) and (last.get("role") != "assistant" or last.get("stopReason") == "toolUse")


def last_message(lines: Iterable[bytes]) -> dict[str, Any]:
    """Return the last message of a session's lines."""
    for line in reversed(list(lines)):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("type") == "message" and isinstance(event.get("message"), dict):
            message: dict[str, Any] = event["message"]
            return message
    return {}


def gateway(log: Path, place: Place) -> Iterator[bool]:
    """Run OpenClaw's gateway around what is done with this; yield whether it answers. It is ended in any case."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            ["openclaw", "gateway", "--allow-unconfigured", "--port", str(PORT)], stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            end = time.monotonic() + min(START_SECONDS, place.left())
            while process.poll() is None and time.monotonic() < end and not is_healthy():
                time.sleep(0.2)
            yield process.poll() is None and is_healthy()
        finally:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_healthy() -> bool:
    """Whether the gateway answers; never asked for by way of a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{PORT}/healthz", timeout=2.0) as answer:
            return int(answer.status) == 200
    except (OSError, ValueError):
        return False


def main(board: str, message: str, seconds: str) -> int:
    """Run one turn: the board's folder, the file of the message, the seconds that there are."""
    place = Place(Path.home(), Path(board), time.monotonic() + float(seconds))
    log = place.home / ".openclaw" / "gateway.log"
    for answers in gateway(log, place):
        if answers:
            return follow(place, Path(message).read_text("utf-8"))
        say(f"OpenClaw's gateway does not answer: {log.read_text('utf-8', 'replace')[-2000:]}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
