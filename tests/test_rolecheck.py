"""Can every hidden role that will ask a model ask one? What is wrong is said before anything starts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from task_package import build
from test_plugin import add_task

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.preflight import Wanted, check_models
from pytest_uniclaw.rolecheck import check_roles
from pytest_uniclaw.settings import resolve
from pytest_uniclaw.task import load_task

Json = dict[str, Any]
BROKEN = "lanes:\n  default:\n    turns:\n    - - sya: hello\n"
OTHER_LANE = "lanes: {task_101_09_other: {turns: [[{say: hello}]]}}\n"
ACME = '[providers.acme]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "ACME_KEY"\n'
NO_MODEL = {
    "supervisor": "what has no check is judged by a model, and the supervisor has none",
    "simulator": "the user simulator asks a model, and none is chosen",
}


def session_options(role: str, **given: str) -> Json:
    """Options of a session in which only ``role`` may ask a model."""
    others = {"uniclaw_supervisor": "checks"} if role != "supervisor" else {}
    return others | {f"uniclaw_{name}": value for name, value in given.items()}


def check(root: Path, options: Json, agent: str = "nop") -> bool:
    """Do what a session does before it starts anything; return whether it needs a gateway. Raises SettingsError."""
    task = load_task(build(root).yaml)
    settings = resolve(options, {}, root, {})
    wanted = [Wanted(task, agent)]
    return check_models(wanted, settings) | check_roles(wanted, settings)


FOR_X = "for 'x' (task task_101_01_sum).\n  fix:"
# Which option has what value, and what is said about it.
WRONG: dict[str, tuple[str, str, str]] = {
    "none": ("", "model", "{none}"),
    "absent": ("", "script:absent.yaml", "the {role}'s script: no such file: {root}/absent.yaml\n  fix: correct"),
    "lane": ("", "script:lane.yaml", "lane.yaml: no lane 'task_101_01_sum' and no lane 'default' (lanes: task_101_09_"),
    "broken": ("", "script:broken.yaml", "broken.yaml:4: lanes.default.turns[0][0].sya: is not known\n  fix: did you"),
    "no_file": (
        "_model",
        "script",
        "no task ships a script for that role\n  fix: name a file with --uniclaw-{role}-model=",
    ),
    "no_key": (
        "_model",
        "acme/x",
        f"the {{role}} needs a model, and the provider 'acme' has no key {FOR_X} set ACME_KEY",
    ),
    "misspelt": ("_model", "acmee/x", f"no provider 'acmee' is configured {FOR_X} did you mean acme/x?"),
    "openai": ("_model", "x", f"the provider 'openai' has no key {FOR_X} set OPENAI_API_KEY"),
}


@pytest.mark.parametrize("role", ["supervisor", "simulator"])
@pytest.mark.parametrize(("option", "value", "words"), WRONG.values(), ids=WRONG)
def test_a_hidden_role_that_cannot_ask_its_model_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, option: str, value: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in {"lane.yaml": OTHER_LANE, "broken.yaml": BROKEN, "uniclaw.toml": ACME}.items():
        (tmp_path / file).write_text(text)
    options = session_options(role, **{role: "model", f"{role}{option}": value})
    with pytest.raises(SettingsError) as caught:
        check(tmp_path, options)
    assert words.format(role=role, root=tmp_path, none=NO_MODEL[role]) in str(caught.value)
    assert value != "model" or f"--uniclaw-{role}-model=PROVIDER/NAME" in str(caught.value)


def test_by_default_a_task_without_checks_needs_a_supervisors_model(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=NO_MODEL["supervisor"]):
        check(tmp_path, {})
    assert not check(tmp_path, session_options("none")), "no gateway for a session without models"


def test_an_executors_provider_without_key_is_named_by_its_own_variable(tmp_path: Path) -> None:
    (tmp_path / "uniclaw.toml").write_text(ACME)
    for model, variable in (("acme/x", "ACME_KEY"), ("gpt-5.4", "OPENAI_API_KEY")):
        with pytest.raises(SettingsError, match=f"has no key for .*\n  fix: set {variable}, or run the scripted model"):
            check(tmp_path, session_options("executor", model=model), "nanobot")


def test_the_papers_two_follow_ups_need_a_simulator_whatever_the_task_says(tmp_path: Path) -> None:
    (tmp_path / "uniclaw.toml").write_text("followups = 0\n")
    options = session_options("simulator", simulator="model")
    assert not check(tmp_path, options)
    (tmp_path / "uniclaw.toml").unlink()
    task = replace(load_task(build(tmp_path).yaml), followups=0)
    for protocol, asked in (("strict", False), ("paper", True)):
        settings = resolve(options | {"uniclaw_protocol": protocol}, {}, tmp_path, {})
        with pytest.raises(SettingsError, match=NO_MODEL["simulator"]) if asked else nullcontext():
            assert not check_roles([Wanted(task, "nop")], settings)


PRICED = """
[providers.acme]
base_url = "http://127.0.0.1:9/v1"
[providers.acme.prices]
priced = {input = 1.0, output = 2.0}
half = {input = 1.0}
"""


@pytest.mark.parametrize("model", ["half", "none"])
@pytest.mark.parametrize("role", ["executor", "supervisor", "simulator"])
def test_a_cap_needs_the_price_of_every_model(tmp_path: Path, role: str, model: str) -> None:
    (tmp_path / "uniclaw.toml").write_text(PRICED)
    names = {"executor": ("model", "agent nanobot")}
    option, who = names.get(role, (f"{role}_model", f"the {role}"))
    roles = {} if role == "executor" else {role: "model"}
    capped = session_options(role, **roles) | {"uniclaw_max_cost": "20"}
    agent = "nanobot" if role == "executor" else "nop"
    with pytest.raises(SettingsError) as caught:
        check(tmp_path, capped | {f"uniclaw_{option}": f"acme/{model}"}, agent)
    assert str(caught.value) == (
        f"max_cost=20 needs the price of every model, and the provider 'acme' has none for '{model}' "
        f"({who}, task task_101_01_sum)\n"
        f'  fix: state input and output in [providers.acme.prices."{model}"] of uniclaw.toml, '
        "or set no max_cost"
    )
    assert check(tmp_path, capped | {f"uniclaw_{option}": "acme/priced"}, agent)
    del capped["uniclaw_max_cost"]
    assert check(tmp_path, capped | {f"uniclaw_{option}": f"acme/{model}"}, agent)


def test_scripts_and_cassettes_cost_nothing_under_a_cap(tmp_path: Path) -> None:
    (tmp_path / "uniclaw.toml").write_text(PRICED)
    (tmp_path / "tape").mkdir()
    (tmp_path / "own.yaml").write_text("turns: [[{say: hello}]]\n")
    capped = session_options("executor") | {"uniclaw_max_cost": "20"}
    assert check(tmp_path, capped | {"uniclaw_model": f"script:{tmp_path / 'own.yaml'}"}, "nanobot")
    assert check(tmp_path, capped | {"uniclaw_model": "acme/none", "uniclaw_cassette_replay": "tape"}, "nanobot")


def test_a_cap_is_above_0(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--uniclaw-max-cost=0: expected an amount of US dollars above 0$"):
        resolve({"uniclaw_max_cost": "0"}, {}, tmp_path, {})


def test_cassettes_are_not_recorded_over_themselves(tmp_path: Path) -> None:
    (tmp_path / "tape").mkdir()
    options = session_options("executor", cassette_replay="tape", cassette_record="./other/../tape")
    with pytest.raises(SettingsError, match=r"name the same folder: .*tape\n  fix: record into another folder"):
        check(tmp_path, options)
    check(tmp_path, options | {"uniclaw_cassette_record": "other"})


def test_a_user_who_never_speaks_needs_no_model(tmp_path: Path) -> None:
    options = session_options("simulator", simulator="model")
    with pytest.raises(SettingsError, match=NO_MODEL["simulator"]):
        check(tmp_path, options)
    assert not check(tmp_path, options | {"uniclaw_followups": "0"})


@pytest.mark.parametrize("judges", ["2", "0", "-1", "1.5", "three", "³"])
def test_a_panel_has_an_odd_number_of_judges(tmp_path: Path, judges: str) -> None:
    with pytest.raises(SettingsError, match=f"--uniclaw-judges={judges}: expected an odd number such as 3, or auto"):
        resolve({"uniclaw_judges": judges}, {}, tmp_path, {})


def test_wrong_usage_ends_the_session_before_anything_starts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest("--agent=nop")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{NO_MODEL['supervisor']}*", "*--uniclaw-supervisor-model=PROVIDER/NAME*"])
    assert not (pytester.path / "runs").exists()
