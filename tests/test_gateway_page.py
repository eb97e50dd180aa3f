"""docs/reference/gateway.md agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_uniclaw.models.cassette import LARGE
from pytest_uniclaw.models.exchange import Sent
from pytest_uniclaw.models.gateway import MAX_BODY
from pytest_uniclaw.models.grants import INFRA_CLASSES, CallClass, GrantRequest, Tuning
from pytest_uniclaw.models.normalise import IGNORED

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "gateway.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [line.split(" | ") for line in lines[1:]]


def test_every_class_with_who_is_charged() -> None:
    table = {row[0].strip("`"): row[-1] for row in rows("Classes")}
    assert set(table) == set(CallClass)
    assert {name for name, charged in table.items() if charged == "infra"} == INFRA_CLASSES


def test_every_field_of_a_grant() -> None:
    assert {name for row in rows("Grants") for name in re.findall(r"`(\w+)`", row[0])} == set(GrantRequest.model_fields)


def test_every_field_of_an_exchange() -> None:
    named = {name for row in rows("The exchange log") for name in re.findall(r"`(\w+)`", row[0])}
    assert set(vars(Sent())) <= named
    assert {"chunks", "body", "error", "class"} <= named


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_ignored_parameters_are_named(name: str) -> None:
    assert f"`{name}`" in section("Cassettes")


def test_figures() -> None:
    tuning = Tuning()
    assert f"up to {tuning.tries} tries" in PAGE
    assert f"jitter up to {tuning.backoff_cap_seconds:g} s" in PAGE
    assert f"up to {MAX_BODY >> 20} MiB unpacked" in PAGE
    assert f"texts over {LARGE >> 10} KiB" in PAGE
