"""Scripts: how they are read, what is wrong in them, and which step a request is at."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pytest_uniclaw.errors import SettingsError, TaskError
from pytest_uniclaw.models.player import NOTHING_MORE, Player, is_real_user, locate
from pytest_uniclaw.models.script import Fault, Say, Script, ToolUse, Use, load_script

TWO_TURNS = """
turns:
  - - shell: ls
    - calls: [{name: read_file, arguments: {path: a}}, {shell: pwd}]
    - say: first done
  - - think: hm
    - say: second done
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def user(text: str) -> dict:
    return {"role": "user", "content": text}


TOOL = {"role": "tool", "tool_call_id": "c", "content": "out"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}


def said(text: str) -> dict:
    return {"role": "assistant", "content": text}


def test_reads_every_kind_of_step(tmp_path: Path) -> None:
    script = load_script(
        write(
            tmp_path,
            """
            turns:
              - - {shell: "cp a b", think: "let me see"}
                - call: {name: view, arguments: {path: "/x", deep: [1, null]}}
                - raw_call: {name: exec, arguments: '{"command": "echo'}
                - fail: {status: 429, type: rate_limit, message: slow, retry_after: 1, times: 2}
                - {hang: true, times: 1}
                - reset: true
                - body: "<html>"
                - break: true
                - empty: true
                - think: one
                - think: " two"
                - say: 完成
            """,
        )
    )
    (steps,) = script.turns
    assert steps[0] == Use((ToolUse(shell="cp a b"),), think="let me see")
    assert steps[1] == Use((ToolUse("view", '{"path": "/x", "deep": [1, null]}'),))
    assert steps[2] == Use((ToolUse("exec", '{"command": "echo'),))
    assert steps[3] == Fault("fail", 2, 429, "rate_limit", None, "slow", 1)
    assert [(s.kind, s.times) for s in steps[4:8]] == [("hang", 1), ("reset", None), ("body", None), ("break", None)]
    assert steps[8:] == (Say(""), Say("完成", think="one two"))


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("turns:\n  - - shel: ls\n", 2, "turns[0][0].shel", "did you mean shell?"),
        ("turn:\n  - - say: x\n", 1, "turn", "did you mean turns?"),
        ("turns: []\n", 1, "turns", "one list of steps per user message"),
        ("turns:\n  - say: x\n", 2, "turns[0]", "must be a list of steps"),
        ("turns:\n  - - say: x\n      shell: y\n", 2, "turns[0][0]", "has 2 actions"),
        ("turns:\n  - - say: x\n    - say: 5\n", 3, "turns[0][1].say", "the file says 5"),
        ("turns:\n  - - call: {arguments: {}}\n", 2, "turns[0][0].call", "has no name"),
        ("turns:\n  - - call: {name: x, arguments: [1]}\n", 2, "turns[0][0].call.arguments", "must be a mapping"),
        ("turns:\n  - - call: {name: x, arguments: {d: 2026-01-01}}\n", 2, "turns[0][0].call.arguments", "quote dates"),
        ("turns:\n  - - fail: {status: 200}\n", 2, "turns[0][0].fail.status", "400 to 599"),
        ("turns:\n  - - fail: {status: 429, retry: 1}\n", 2, "turns[0][0].fail.retry", "did you mean retry_after?"),
        ("turns:\n  - - {say: x, times: 2}\n", 2, "turns[0][0].times", "belongs to faults only"),
        ("turns:\n  - - hang: yes please\n", 2, "turns[0][0].hang", "takes only `true`"),
        ("turns:\n  - - think: x\n", 2, "turns[0][0]", "nothing follows"),
    ],
)
def test_names_line_field_and_remedy(tmp_path: Path, text: str, line: int, field: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TaskError) as caught:
        load_script(path)
    assert (caught.value.path, caught.value.line, caught.value.field) == (path, line, field)
    assert words in str(caught.value)
    assert "fix:" in str(caught.value)


def test_a_missing_script_is_a_usage_error_that_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml.*\n  fix: .*--model=script:FILE"):
        load_script(tmp_path / "nowhere.yaml")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return load_script(write(tmp_path, TWO_TURNS))


def test_step_follows_from_the_conversation_alone(script: Script) -> None:
    chat = [{"role": "system", "content": "s"}, user("do it")]
    expected = ["shell", "calls", "first done", NOTHING_MORE]
    seen = []
    for _ in expected:
        step = Player(script).next_step(chat)[1]
        seen.append(step.text if isinstance(step, Say) else "shell" if len(step.calls) == 1 else "calls")
        chat += [CALLED, TOOL]
    assert seen == expected


def test_second_turn_and_past_the_last(script: Script) -> None:
    player = Player(script)
    chat = [user("a"), CALLED, TOOL, said("first done"), user("b")]
    assert player.next_step(chat)[1] == Say("second done", think="hm")
    assert player.next_step([*chat, said("second done"), user("c")])[1] == Say(NOTHING_MORE)


def test_no_user_message_at_all_ends_at_once(script: Script) -> None:
    assert Player(script).next_step([{"role": "system", "content": "title please"}])[1] == Say(NOTHING_MORE)


@pytest.mark.parametrize(
    "extra",
    [
        user("<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
        user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nsecret\n<<<END>>>"),
        user("[Runtime Context — metadata only, not instructions]\nnow\n[/Runtime Context]\n"),
        {"role": "user", "content": [{"text": "Attached image(s) from tool result:"}, {"type": "image_url"}]},
        user("[Mon 2026-11-30 12:01 UTC] The previous attempt did not produce a user-visible answer. Answer now."),
        user("Please provide your response to the user based on the conversation above."),
        {"role": "user", "content": [{"text": "Attached media from tool result:"}, {"type": "image_url"}]},
        {"role": "user", "content": [{"text": "(attached media from previous tool call)"}, {"type": "image_url"}]},
    ],
    ids=[
        "codex", "openclaw", "nanobot-context", "openclaw-image", "openclaw-reask", "nanobot-retry", "opencode",
        "qwen-code",
    ],
)
def test_messages_of_the_agents_machinery_are_no_turn(extra: dict) -> None:
    assert not is_real_user(extra)
    position = locate([user("real"), CALLED, TOOL, extra])
    assert (position.turn, position.said) == (1, 1)


def test_nanobot_puts_its_context_before_the_users_words() -> None:
    message = user("[Runtime Context — metadata only, not instructions]\nnow\n[/Runtime Context]\n\nMake a file")
    assert is_real_user(message)


def test_a_stamp_before_the_users_words_changes_nothing() -> None:
    assert is_real_user(user("[Mon 2026-11-30 12:01 UTC] Make a file"))
    assert is_real_user(user("[Mon] is a day"))


def test_images_of_the_user_are_a_turn() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "text", "text": "see"}]
    assert locate([{"role": "user", "content": parts}]).turn == 1


def test_a_fault_with_times_gives_way(tmp_path: Path) -> None:
    text = """
    turns:
      - - shell: a
        - fail: {status: 500, times: 2}
        - {reset: true, times: 1}
        - say: done
    """
    player = Player(load_script(write(tmp_path, text)))
    start, later = [user("x")], [user("x"), CALLED, TOOL]
    assert isinstance(player.next_step(start)[1], Use)
    kinds = [step.kind for _ in range(3) if isinstance(step := player.next_step(later)[1], Fault)]
    assert kinds == ["fail", "fail", "reset"]
    assert player.next_step(later)[1] == Say("done")
    assert player.next_step(later)[1] == Say("done"), "the step does not move without a new message"


LANES = """
lanes:
  default:
    turns: [[{say: for everyone}]]
  task_101_x:
    turns: [[{say: for x}], [{say: for x again}]]
"""


def test_lanes_are_chosen_by_task_and_fall_back_to_default(tmp_path: Path) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text(LANES)
    assert load_script(path, "task_101_x").turns == ((Say("for x"),), (Say("for x again"),))
    assert load_script(path, "task_101_y").turns == ((Say("for everyone"),),)
    path.write_text(LANES.replace("default", "other"))
    with pytest.raises(SettingsError, match=r"no lane 'task_101_y' and no lane 'default' \(lanes: other, task_101_x\)"):
        load_script(path, "task_101_y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lanes: []", "2: lanes: must be a mapping"),
        ("lanes: {default: [1]}", "2: lanes.default: must be a mapping"),
        ("lanes: {default: {turns: []}}", "2: lanes.default.turns: must be a list of turns"),
        ("lanes: {default: {turns: [[{say: x}]]}}\nturns: []", "3: turns: is not known"),
    ],
)
def test_what_is_wrong_in_a_lane_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text("# a script\n" + text)
    with pytest.raises(TaskError) as caught:
        load_script(path, "x")
    assert message in str(caught.value)


def test_a_grant_of_a_later_turn_begins_there(tmp_path: Path) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text(LANES)
    player = Player(load_script(path, "task_101_x"), first_turn=2)
    assert player.next_step([{"role": "user", "content": "judge"}])[1] == Say("for x again")
    asked_again = {"role": "user", "content": "[uniclaw re-ask] not valid"}
    said = [{"role": "user", "content": "judge"}, {"role": "assistant", "content": "prose"}, asked_again]
    assert player.next_step(said)[1] == Say("I have nothing more to add.")
