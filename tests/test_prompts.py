"""The executor's first message: every path from the sandbox, the task's language, nothing that was not asked for."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from pytest_uniclaw.paths import SandboxPaths, paths_for
from pytest_uniclaw.prompts import first_message
from pytest_uniclaw.task import PublicView

PATHS = SandboxPaths(home="/h", workspace="/w", private="/p")
BODY = "Sum {results} in $HOME.\n\n保留原样"


def view(language: Literal["en", "zh"] = "en", *skills: str) -> PublicView:
    return PublicView("task_1", BODY, language, skills, ("a.csv",))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_preamble_names_every_place_once(language: Literal["en", "zh"]) -> None:
    preamble, _, body = first_message(view(language, "adding"), PATHS).partition("\n\n")
    assert body == f"{BODY}\n"
    for place in (PATHS.workspace + r"(?!/)", PATHS.results, PATHS.sources, f"{PATHS.skills}/adding/SKILL.md"):
        assert len(re.findall(place, preamble)) == 1
    assert set(re.findall(r"(?<![\w.])/[a-z]\w*", preamble)) == {"/w", "/h"}
    assert "{" not in preamble


def test_each_language_is_its_own() -> None:
    english, chinese = (first_message(view(code), PATHS).partition("\n\n")[0] for code in ("en", "zh"))
    assert not re.search(r"[\u3400-\u9fff]", english)
    assert len(re.findall(r"[\u3400-\u9fff]", chinese)) > 100
    assert len(english.splitlines()) == len(chinese.splitlines())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_desktop_is_mentioned_only_where_there_is_one(language: Literal["en", "zh"]) -> None:
    assert "1440 x 900" in first_message(view(language), PATHS, gui=True)
    assert "1440" not in first_message(view(language), PATHS)
    assert first_message(view(language), PATHS, gui=True).endswith(f"\n\n{BODY}\n")


def test_skills_are_listed_in_order_and_once() -> None:
    text = first_message(view("en", "adding", "web-search", "adding"), PATHS)
    assert re.findall(r"/h/skills/([\w-]+)/SKILL\.md", text) == ["adding", "web-search"]
    assert "(none)" in first_message(view("en"), PATHS)


def test_the_account_decides_the_home() -> None:
    assert "/root/skills/adding/" in first_message(view("en", "adding"), paths_for("root"))
    assert "/home/agent/skills/adding/" in first_message(view("en", "adding"), paths_for("agent"))
