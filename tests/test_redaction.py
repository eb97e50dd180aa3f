"""Redaction is what one alternation, longest first, would do, in time that hardly depends on the number of secrets."""

from __future__ import annotations

import re
import secrets
import time
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw import redaction
from pytest_uniclaw.redaction import REDACTED, VIRTUAL_KEY, Redactor

KEY = "uck-" + "k" * 32


def as_defined(wanted: list[str], text: str) -> str:
    """The definition: the leftmost match of the longest form, a virtual key last."""
    kept = {secret for secret in wanted if len(secret) >= redaction.SHORTEST_SECRET}
    forms = sorted({form for secret in kept for form in redaction._forms(secret)}, key=redaction._longest_first)
    return re.sub("|".join([*map(re.escape, forms), VIRTUAL_KEY]), REDACTED, text)


def as_defined_in_bytes(wanted: list[str], data: bytes) -> bytes:
    kept = {secret for secret in wanted if len(secret) >= redaction.SHORTEST_SECRET}
    forms = {form.encode("utf-8", "replace") for secret in kept for form in redaction._forms(secret)}
    forms |= {secret.encode(code, "replace") for secret in kept for code in ("utf-16-le", "utf-16-be")}
    pattern = b"|".join([*map(re.escape, sorted(forms, key=redaction._longest_first)), VIRTUAL_KEY.encode()])
    if b"\0" in data:
        return re.sub(pattern, lambda found: b"*" * len(found[0]), data)
    return re.sub(pattern, REDACTED.encode(), data)


SECRETS = st.lists(st.text("ab", min_size=3, max_size=20) | st.sampled_from(["uck-kkk", "[redacted]", "a密bä"]))
PARTS = st.text("ab", max_size=24) | st.sampled_from([KEY, "truck-", "_", "[reda", "cted]", "密", "\0", "uck-", '"\\'])


@given(SECRETS, st.lists(st.tuples(PARTS, st.integers(0, 9))), st.sampled_from([16, redaction.LARGE]))
def test_it_is_what_the_alternation_gives(wanted: list[str], parts: list[tuple[str, int]], large: int) -> None:
    pieces = [wanted[number] if number < len(wanted) else part for part, number in parts]
    text = "".join(pieces)
    data = text.encode() + "".join(pieces[:1]).encode("utf-16-le")
    redactor = Redactor(wanted)
    assert redactor.text(text) == as_defined(wanted, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "LARGE", large)
        expected = as_defined_in_bytes(wanted, data)
        assert redactor.data(data) == expected
        assert expected == data or redactor.may_hold(data)


@pytest.mark.parametrize("offset", range(40))
def test_a_secret_is_found_in_large_data_at_any_place(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "LARGE", 1)
    redactor = Redactor(["tok-0123456789-abcdef-0123456789", "hunter22-hunter22", "short"])
    for secret in ("tok-0123456789-abcdef-0123456789", "hunter22-hunter22", "short"):
        assert redactor.data(b"." * offset + secret.encode()) == b"." * offset + REDACTED.encode()


@pytest.mark.parametrize(
    ("text", "clean"),
    [("hunter22-more", REDACTED), ("hunter22hunter22-more", REDACTED * 2), ("xhunter22-mor", f"x{REDACTED}-mor")],
)
def test_of_overlapping_secrets_the_longest_wins(text: str, clean: str) -> None:
    redactor = Redactor(["hunter22", "hunter22-more"])
    assert redactor.text(text) == clean
    assert redactor.data(text.encode()) == clean.encode()


def test_a_mapped_file_can_be_closed_after_the_search() -> None:
    with mmap(-1, redaction.LARGE) as view:
        assert not Redactor(["tok-0123456789-abcdef"]).may_hold(view)
        view[-21:] = b"tok-0123456789-abcdef"
        assert Redactor(["tok-0123456789-abcdef"]).may_hold(view)


def test_a_large_file_with_a_word_that_ends_like_a_key_begins_takes_little_time() -> None:
    wanted = [f"sk-proj-{secrets.token_urlsafe(48)}" for _ in range(20)]
    redactor, data = Redactor(wanted), b"sk-proj-" * (2 << 20) + b" truck-1 "
    began = time.process_time()
    assert redactor.data(data) is data
    assert redactor.data(data + wanted[3].encode()) == data + REDACTED.encode()
    assert time.process_time() - began < 3
