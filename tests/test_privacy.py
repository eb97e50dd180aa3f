"""Names and values of ``.privacy``: parsed strictly, shown never."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.privacy import PrivacyValues, is_placeholder, read_keys, read_values, resolve_values

SECRET = "s3cret-TODO-token"


def file(root: Path, text: str | bytes) -> Path:
    path = root / "privacy.local.env"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_keys(tmp_path: Path) -> None:
    text = "# needs a login\n\nGITHUB_TOKEN\n  SNAPSHOT_MODE  \nPASTED=value\n"
    assert read_keys(file(tmp_path, text)) == ("GITHUB_TOKEN", "SNAPSHOT_MODE", "PASTED")
    assert read_keys(tmp_path / "absent") == ()
    assert read_keys(file(tmp_path, "")) == ()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("A\nB-C\n", 2, "'B-C' is not a variable name"),
        ("1A\n", 1, "not a variable name"),
        ("A\n# x\nA\n", 3, "listed twice"),
        ("LD_PRELOAD\n", 1, "LD_PRELOAD"),
        (b"A\n\xff\n", 2, "UTF-8"),
        (b"A\nB\0\n", 2, "NUL"),
        ("钥匙\n", 1, "not a variable name"),
    ],
)
def test_bad_keys_name_the_line(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    with pytest.raises(TaskError, match=words) as caught:
        read_keys(file(tmp_path, text))
    assert caught.value.line == line


def test_values(tmp_path: Path) -> None:
    text = f"# mine\nexport A=1\nB = two words \nC='quo ted'\nD=\"x\nE=a=b#c\nF=\nTOKEN={SECRET}\n"
    values = read_values(file(tmp_path, text))
    assert values.pairs == (
        ("A", "1"), ("B", "two words"), ("C", "quo ted"), ("D", '"x'), ("E", "a=b#c"), ("F", ""), ("TOKEN", SECRET),
    )  # fmt: skip
    assert values.get("B") == "two words"
    assert values.get("Z") is None


@pytest.mark.parametrize("text", [f"TOKEN {SECRET}\n", f"A={SECRET}\nA={SECRET}\n"])
def test_a_bad_values_file_never_shows_a_value(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskError) as caught:
        read_values(file(tmp_path, text))
    assert SECRET not in str(caught.value)


def test_no_representation_shows_a_value() -> None:
    values = PrivacyValues((("TOKEN", SECRET),))
    assert SECRET not in f"{values!r} {values} {[values]} {values.problems(['OTHER'])}"
    assert "TOKEN" in str(values)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, "A=file\nB=file\n")
    values = resolve_values(path, {"UNICLAW_PRIVACY_A": "env", "UNICLAW_PRIVACY_C": "env", "B": "stray", "HOME": "/x"})
    assert dict(values.pairs) == {"A": "env", "B": "file", "C": "env"}
    assert resolve_values(None, {"UNICLAW_PRIVACY_A": "1"}).environment(["A"]) == {"A": "1"}


def test_problems_name_keys_by_kind() -> None:
    values = PrivacyValues((("A", "fine"), ("B", " "), ("C", "REPLACE_ME_PLEASE"), ("D", "token")), "values.env")
    assert values.problems(["A"]) is None
    assert values.problems([]) is None
    assert values.problems(["A", "B", "C", "D", "E"]) == (
        "privacy values missing: E; empty: B; still a placeholder: C, D (values.env; or set UNICLAW_PRIVACY_<KEY>)"
    )


FILLERS = [
    "REPLACE_ME",
    "replace_me",
    "CHANGEME-now",
    "YOUR_API_KEY",
    "<YOUR_API_KEY>",
    "TODO",
    "...",
    "Password",
    "you@outlook.com",
]
REAL = [SECRET, "xTODOx", "sk-YOUR_9f", "YOUR_a9f8Gx", "a...b", "my password", "tokenised", "https://x/REPLACE_ME"]


@pytest.mark.parametrize("value", FILLERS)
def test_placeholders(value: str) -> None:
    assert is_placeholder(value)


@pytest.mark.parametrize("value", REAL)
def test_a_real_secret_that_contains_such_a_word_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


def test_secrets_for_redaction_come_longest_first() -> None:
    values = PrivacyValues((("A", "abc"), ("B", "abcdef"), ("C", ""), ("D", "abc")))
    assert values.secrets() == ("abcdef", "abc")
