"""The export of an attempt as ATIF: its rules (Harbor's RFC 0001, v1.7), whatever a transcript holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_uniclaw.attempt import Attempt, Ending, Turn, Usage
from pytest_uniclaw.cli import main
from pytest_uniclaw.commands.export import FILE
from pytest_uniclaw.report.atif import trajectory
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import write_json

IMAGE = "inline_images/0123456789abcdef.png"
GONE = "inline_images/fedcba9876543210.png"
IMAGES = {IMAGE: f"turns/1/evidence/{IMAGE}"}


def record(role: str, *blocks: Any, agent: str = "", **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": list(blocks)} | more
    found = {"type": "message", "id": "m", "timestamp": "2026-11-30T10:00:00+00:00", "message": message}
    return found | ({"agentId": agent} if agent else {})


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def call(ident: str, arguments: Any = None) -> dict[str, Any]:
    return {"type": "toolCall", "id": ident, "name": "exec", "arguments": arguments or {}}


RECORDS = (
    record("user", text("Sum it.")),
    record("assistant", {"type": "thinking", "thinking": "First look."}, text("Looking."), call("a"), call("b", [1])),
    record("toolResult", text("one"), toolCallId="a", toolName="exec"),
    record("toolResult", text(f"[image: {IMAGE}]"), toolCallId="b", toolName="exec"),
    record("user", text("Count."), agent="helper"),
    record("assistant", text("Three."), agent="helper"),
    record("toolResult", text("late"), toolCallId="gone", toolName="exec"),
    record("assistant", text("Done.")),
    {"type": "notice", "id": "n", "timestamp": "", "cut": 1},
)


def attempt_of(**more: Any) -> Attempt:
    usage = Usage(role="executor", calls=2, input_tokens=30, output_tokens=4)
    fields: dict[str, Any] = {
        "attempt_id": "task-p1-abc", "task_id": "task", "category": "101_skill_usage", "capability": "skill_usage",
        "language": "en", "agent": "nanobot", "model": "m", "number": 1, "status": Status.PASS, "score": 1.0,
        "threshold": 0.9, "reason": "", "started": "", "ended": "", "usage": (usage,),
        "digests": {"agent": "nanobot@0.1.5.post3"},
    }  # fmt: skip
    return Attempt(**fields | more)


def assert_sound(found: dict[str, Any]) -> None:
    """What a reader of the format relies on."""
    assert found["schema_version"] == "ATIF-v1.7"
    assert [step["step_id"] for step in found["steps"]] == list(range(1, len(found["steps"]) + 1))
    for step in found["steps"]:
        assert step["source"] in {"user", "agent"}
        known = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        assert step["source"] == "agent" or not known
        assert all(isinstance(call["arguments"], dict) for call in step.get("tool_calls", ()))
        results = step.get("observation", {"results": []})["results"]
        assert {result["source_call_id"] for result in results if "source_call_id" in result} <= known
    json.dumps(found, allow_nan=False)
    for inner in found.get("subagent_trajectories", ()):
        assert_sound(inner)


def test_a_conversation_with_tools_images_and_a_sub_agent() -> None:
    found = trajectory(attempt_of(), RECORDS, IMAGES)
    assert found is not None
    assert_sound(found)
    user, looking, done = found["steps"]
    assert (user["message"], done["message"]) == ("Sum it.", "Done.")
    assert (looking["message"], looking["reasoning_content"]) == ("Looking.", "First look.")
    assert [call["arguments"] for call in looking["tool_calls"]] == [{}, {"value": [1]}]
    one, image, late = looking["observation"]["results"]
    assert one == {"source_call_id": "a", "content": "one"}
    assert image["content"] == [
        {"type": "image", "source": {"media_type": "image/png", "path": f"turns/1/evidence/{IMAGE}"}}
    ]
    assert late == {"content": "late"}
    (helper,) = found["subagent_trajectories"]
    assert (helper["trajectory_id"], [step["message"] for step in helper["steps"]]) == ("helper", ["Count.", "Three."])
    assert found["agent"] == {"name": "nanobot", "version": "0.1.5.post3", "model_name": "m"}
    assert found["final_metrics"] == {"total_prompt_tokens": 30, "total_completion_tokens": 4, "total_steps": 3}
    assert found["extra"]["uniclaw"]["status"] == "pass"


def test_a_text_that_names_an_image_that_is_not_there_is_a_text() -> None:
    found = trajectory(attempt_of(), [record("assistant", text(f"[image: {IMAGE}]"))], {IMAGE[:-3] + "jpg": "x"})
    assert found is not None
    assert found["steps"][0]["message"] == f"[image: {IMAGE}]"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-W48-1", {"timestamp": "2026-11-23T00:00:00"}), ("20261130T10", {"timestamp": "2026-11-30T10:00:00"}),
        ("2026-11-30T10:00:00Z", {"timestamp": "2026-11-30T10:00:00+00:00"}), ("soon", {}), (17, {}), (None, {}),
    ],
)  # fmt: skip
def test_a_time_is_written_in_one_way(given: Any, shown: dict[str, str]) -> None:
    found = trajectory(attempt_of(), [record("assistant", text("a")) | {"timestamp": given}])
    assert found is not None
    assert {name: value for name, value in found["steps"][0].items() if name == "timestamp"} == shown


def test_an_attempt_without_a_conversation_has_none() -> None:
    assert trajectory(attempt_of(), ()) is None
    assert trajectory(attempt_of(), RECORDS[-1:]) is None


BLOCKS = st.one_of(
    st.builds(text, st.text(max_size=8) | st.just(f"[image: {IMAGE}]")),
    st.builds(call, st.sampled_from("abc"), st.sampled_from([None, {"x": 1}, [1], "raw"])),
    st.just({"type": "thinking", "thinking": "hm"}), st.just({"type": "odd"}), st.just("no block"),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.builds(
    record, st.sampled_from(["user", "assistant", "toolResult", "system"]), BLOCKS, BLOCKS,
    agent=st.sampled_from(["", "", "one", "two"]), toolCallId=st.sampled_from("abcd"),
), min_size=1, max_size=8))  # fmt: skip
def test_any_transcript_becomes_a_sound_trajectory(records: list[dict[str, Any]]) -> None:
    found = trajectory(attempt_of(), records)
    if found is not None:
        assert_sound(found)


def parts_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of what tools returned and of what was said, where it has parts."""
    results = [result for step in found["steps"] for result in step.get("observation", {"results": []})["results"]]
    contents = [step["message"] for step in found["steps"]] + [result["content"] for result in results]
    return [part for content in contents if isinstance(content, list) for part in content]


def test_the_command_writes_beside_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs" / "r" / "a1" / "nanobot" / "m" / "101_skill_usage" / "task" / "p1-abc"
    (folder / "turns" / "1" / "evidence").mkdir(parents=True)
    (folder / "turns" / "1" / "evidence" / "inline_images").mkdir()
    (folder / "turns" / "1" / "evidence" / IMAGE).write_bytes(b"png")
    lines = "".join(json.dumps(one) + "\n" for one in (*RECORDS, record("user", text(f"[image: {GONE}]"))))
    (folder / "turns" / "1" / "evidence" / "transcript.jsonl").write_text(lines)
    turn = Turn(
        number=1, message="Sum it.", started="", seconds=1, wall_seconds=1, ending=Ending.EXITED, exit_code=0,
        finished=True, directory="turns/1",
    )  # fmt: skip
    write_json(folder / "uniclaw.json", attempt_of(turns=(turn,)).model_dump(mode="json"))
    for source in (str(folder), "r"):
        (folder / FILE).unlink(missing_ok=True)
        assert main(["export", source, "--runs-dir", str(tmp_path / "runs")]) == 0
        assert_sound(found := json.loads((folder / FILE).read_text()))
        images = [part for part in parts_of(found) if part["type"] == "image"]
        assert [part["source"]["path"] for part in images] == [f"turns/1/evidence/{IMAGE}"]
        assert str(folder / FILE) in capsys.readouterr().out
    assert main(["export", str(tmp_path), "--runs-dir", str(tmp_path / "runs")]) == 2
