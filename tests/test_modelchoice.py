"""How models are named, one beside another."""

from __future__ import annotations

import pytest

from pytest_uniclaw.modelchoice import parse_models


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (("openai/gpt", "script"), ["gpt", "script"]),
        (("loc/m", "loc2/m"), ["loc-m", "loc2-m"]),
        (("loc/m", "loc/other"), ["m", "other"]),
        (("script:bad.yaml", "script:good.yaml"), ["script-bad", "script-good"]),
        (("script", "script:own.yaml"), ["script", "script-own"]),
        (("script:a/judge.yaml", "script:b/judge.yaml"), ["script-a-judge.yaml", "script-b-judge.yaml"]),
        (("script:one.yaml",), ["script"]),
    ],
)
def test_no_two_models_have_one_label(texts: tuple[str, ...], labels: list[str]) -> None:
    assert [choice.label for choice in parse_models(texts)] == labels
