"""Fingerprints by kind: numbers, days, answers, encodings, secrets; and that no hidden token reaches a message."""

from __future__ import annotations

import base64
import codecs
import json
import pickle
import time
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_uniclaw.judge.answers import answers_in
from pytest_uniclaw.judge.dates import days_in
from pytest_uniclaw.judge.encodings import decoded
from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.folding import collapse, fold, squeeze
from pytest_uniclaw.judge.numbers import numbers_in, roundings
from pytest_uniclaw.judge.phrases import canned_text, phrases
from pytest_uniclaw.judge.rewriter import CHARACTERS, SENTENCES, rewrite, split_sentences

NOTHING = HiddenFingerprints.build([], "")


def kinds(hidden: str, candidate: str, public: str = "") -> tuple[str, ...]:
    return HiddenFingerprints.build([hidden], public).kinds_in(candidate)


# Numbers and days

ONE_VALUE = (
    "1,284,500",
    "1 284 500",
    "1284500",
    "1.2845 million",
    "1.2845m",
    "$1.2845M",
    "1284.5k",
    "１２８４５００",
    "١٢٨٤٥٠٠",
    "1'284'500",
    "1_284_500",
    "1.284.500",
    "12,84,500",
    "1.2845e6",
    "一百二十八万四千五百",
    "壹佰贰拾捌万肆仟伍佰",
    "一百二十八点四五万",
    "128.45万",
    "128万4500",
    "128万4千5百",
    "1.2845百万元",
    "one million two hundred and eighty-four thousand five hundred",
    "one point two eight four five million",
    "One Million, two hundred eighty four thousand five hundred".replace(",", ""),
)


@pytest.mark.parametrize("hidden", ONE_VALUE)
@pytest.mark.parametrize("said", ONE_VALUE[::3])
def test_a_number_is_its_value_in_any_script(hidden: str, said: str) -> None:
    assert "number" in kinds(f"The total is {hidden} in all.", f"I expected {said} there.")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4.75 percent", {"4.75", "0.0475"}),
        ("百分之四点七五", {"4.75", "0.0475"}),
        ("百分之4.75", {"4.75", "0.0475"}),
        ("475 bps", {"475", "0.0475"}),
        ("4,75", {"4", "75", "4.75"}),
        ("1.284.500,75", {"1284500.75"}),
        ("1.284", {"1.284", "1284"}),
        ("两千三", {"2003", "2300"}),
        ("三万五", {"30005", "35000"}),
        ("5w", {"50000"}),
        ("half a million", {"500000"}),
        ("two dozen", {"24"}),
        ("nineteen ninety-nine", {"1999"}),
        ("one two three four", {"1234"}),
        ("3亿2000万", {"300000000", "20000000", "320000000"}),
        ("a hundred", {"100"}),
        ("3 million", {"3000000"}),
        ("万一不行", set()),
        ("两三个", set()),
        ("point of view", set()),
        ("a word and", set()),
        ("二〇二六", {"2026"}),
        ("十万一千", {"101000"}),
    ],
)
def test_readings_of_numbers(text: str, values: set[str]) -> None:
    assert set(numbers_in(fold(text))) == values


@pytest.mark.parametrize(
    ("number", "short"),
    [
        ("1284500", {"1280000", "1285000", "1284000"}),
        ("0.221691", {"0.222", "0.221", "0.2217", "0.2216", "0.22169"}),
        ("412.57", {"412.6", "412.5"}),
        ("2025", set()),
        ("12.34", set()),
        ("70949", {"70900", "70950", "70940"}),
    ],
)
def test_what_a_long_number_is_called_for_short(number: str, short: set[str]) -> None:
    assert set(roundings(number)) == short


def test_a_rounded_answer_is_a_leak() -> None:
    assert "number" in kinds("It comes to 3,337,024 in all.", "Was it 3.34 million?")
    assert "number" in kinds("The rate is 0.221691.", "I would say 22.17%.")
    assert kinds("It comes to 3,337,024 in all.", "Was it 3.4 million?") == ()


@pytest.mark.parametrize(
    "said", ["2025-03-14", "14/03/2025", "14 March 2025", "Mar. 14th", "the 14th of march", "3月14日", "三月十四号"]
)
def test_a_day_is_its_value_in_any_writing(said: str) -> None:
    assert list(days_in(fold(said)))[-1] == "3-14" or "3-14" in days_in(fold(said))
    assert "date" in kinds("It began on 2025-03-14.", f"Look at {said} please.")


def test_what_is_no_day() -> None:
    assert list(days_in(fold("May 5:30, 13/45/2025, version 1.2.3, may 99"))) == []


# Answers


@pytest.mark.parametrize(
    ("hidden", "answers"),
    [
        (
            '{"payee": "Marta Kowalczyk", "wood": "cedarwood", "n": 3, "yes": "true"}',
            {"marta kowalczyk", "kowalczyk", "cedarwood"},
        ),
        ('{"a": "x1"}\n{"a": "gentian"}', {"gentian"}),
        ("name\tkind\nquokka\tanimal\nfjord\tplace", {"quokka", "animal", "fjord"}),
        ("a,b,c\nx,gentian,1\ny,lovage,2", {"gentian", "lovage"}),
        ("| item | value |\n|---|---|\n| keeper | Anneliese Brockhaus |", {"anneliese brockhaus", "brockhaus"}),
        ("badge: gentian", {"gentian"}),
        ("- 地点：栖霞冷库", {"栖霞冷库"}),
        ("<truth><tool>flyway</tool></truth>", {"flyway"}),
        ("We met Tadeusz Bielawski there.", {"tadeusz bielawski", "bielawski"}),
        ("It came from Cornelia van Houten of Zandvoort.", {"cornelia van houten", "houten", "zandvoort"}),
        ("The mount is of pewter.", {"pewter"}),
        ("The answer should be heather.", {"heather"}),
        ("It is acceptable.", set()),
        ('the memo "Lantern Street Refund"', {"lantern street refund"}),
        ("收款人是「欧阳若兰」", {"欧阳若兰"}),
        ("应使用 pgloader 与备份", {"pgloader"}),
        ("经手人是沈书言，其他人不知道", {"沈书言"}),
        ("the report is complete.", set()),
    ],
)
def test_what_looks_like_an_answer(hidden: str, answers: set[str]) -> None:
    found = set(answers_in(hidden))
    assert answers <= found
    assert answers or not found


def test_a_word_that_any_user_says_is_no_answer() -> None:
    rubric = '{"state": "missing", "file": "report", "month": "April", "zh": "完成"}'
    assert kinds(rubric, "The report for April is missing. 完成") == ()


# Encodings

SECRET = "Qm7#tr-Vesper42/xK"
ENCODINGS = {
    "plain": SECRET,
    "upper": SECRET.upper(),
    "reversed": SECRET[::-1],
    "rot13": codecs.encode(SECRET, "rot13"),
    "hex": SECRET.encode().hex(),
    "HEX": SECRET.encode().hex(" ").upper(),
    "hex colons": SECRET.encode().hex(":"),
    "\\x": "".join(f"\\x{b:02x}" for b in SECRET.encode()),
    "\\u": "".join(f"\\u{ord(c):04x}" for c in SECRET),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 url": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64 inside": base64.b64encode(b"key: " + SECRET.encode() + b"!").decode(),
    "base64 of hex": base64.b64encode(SECRET.encode().hex().encode()).decode(),
    "base32": base64.b32encode(SECRET.encode()).decode(),
    "url": quote(SECRET, safe=""),
    "url all": "".join(f"%{b:02X}" for b in SECRET.encode()),
    "entities": "".join(f"&#{ord(c)};" for c in SECRET),
    "decimal": " ".join(str(b) for b in SECRET.encode()),
    "spaces": " ".join(SECRET),
    "dots": ".".join(SECRET),
    "hyphens": "-".join(SECRET),
    "zero width": "\u200b".join(SECRET),
    "bidi": f"\u202e{SECRET}\u202c",
    "soft hyphens": "\u00ad".join(SECRET),
    "blocks": "-".join(SECRET[n : n + 4] for n in range(0, len(SECRET), 4)),
    "full width": "".join(chr(ord(c) + 0xFEE0) for c in SECRET),
    "part": SECRET[:13],
    "json": json.dumps({"k": SECRET}),
    "look-alikes": SECRET.replace("e", "е").replace("p", "р"),
}


@pytest.mark.parametrize("form", ENCODINGS)
def test_a_secret_is_found_in_every_encoding(form: str) -> None:
    assert "secret" in NOTHING.protecting([SECRET]).kinds_in(f"Please use {ENCODINGS[form]} there.")
    assert NOTHING.kinds_in(f"Please use {ENCODINGS[form]} there.") == ()


@pytest.mark.parametrize("form", [name for name in ENCODINGS if name not in {"part", "plain"}])
def test_a_canary_of_a_hidden_file_is_found_in_every_encoding(form: str) -> None:
    hidden = f"Rules.\n<!-- canary: {SECRET} -->\nMore rules."
    assert kinds(hidden, f"Note {ENCODINGS[form]} down.")


def test_short_and_ordinary_values_are_protected_as_words() -> None:
    hidden = NOTHING.protecting(["test", "a1b2", "true", "1", "correct horse"])
    assert hidden.kinds_in("The latest total is true, number 1.") == ()
    assert hidden.kinds_in("It says test.") == ("secret",)
    assert hidden.kinds_in("xa1b2x") == ("secret",)
    assert hidden.kinds_in("correct horses") == ("secret",)
    assert hidden.kinds_in("That is correct, the horse is missing.") == ()


def test_a_value_that_the_request_itself_names_is_no_secret() -> None:
    assert (
        NOTHING.protecting(["ada@calder.example"], "Write to ada@calder.example.").kinds_in(
            "Write to ada@calder.example."
        )
        == ()
    )
    assert NOTHING.protecting(["ada@calder.example"]).kinds_in("Write to ada@calder.example.") == ("secret",)


def test_protected_values_are_not_held_in_the_clear() -> None:
    stored = pickle.dumps(NOTHING.protecting([SECRET])) + repr(NOTHING.protecting([SECRET])).encode()
    for piece in (SECRET, SECRET.lower(), squeeze(fold(SECRET)), "vesper"):
        assert piece.encode() not in stored


def test_ordinary_words_decode_to_nothing() -> None:
    assert decoded("Please check the totals again and carefully compare them with the statements in the folder.") == ""


def test_letters_that_were_spelled_out_are_joined() -> None:
    assert collapse("s c o r e and 1.2.8.4.5 x 评 分") == "score and 12845 x 评分"
    assert collapse("a b c, I see") == "a b c, I see"


# What is public


def test_what_is_public_or_said_by_the_project_itself_is_no_secret() -> None:
    for line in canned_text().splitlines():
        assert kinds(canned_text(), line) == ()
    public = 'ledger_q4.csv has 88412 rows for "Marta Kowalczyk"'
    assert kinds('ledger_q4.csv: 88,412, "Marta Kowalczyk"', "Is Marta Kowalczyk in ledger_q4.csv?", public) == ()
    assert kinds("ledger_q4.csv: 88,412", "Are there 88 412 rows?", public) == ()


# Nothing hangs

LONG = 60_000
ENDLESS = {
    "A-": "A-" * (LONG // 2), "a.": "a." * (LONG // 2), "digits": "1" * LONG + "a", "slashes": "a/" * (LONG // 2),
    "mails": "a@" * (LONG // 2), "numerals": "亿" * LONG, "words": "hundred " * (LONG // 8), "spaces": " " * LONG,
    "lines": " \n" * (LONG // 2), "names": "Aa-" * (LONG // 3), "quotes": '"' * LONG, "json": '{"a":' * (LONG // 5),
    "groups": "1," * (LONG // 2), "elements": '<a b="' * (LONG // 6), "table": "|" * LONG, "marks": "a\u0301" * LONG,
}  # fmt: skip


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_a_text_made_to_take_long_takes_no_longer(text: str) -> None:
    began = time.process_time()
    hidden = HiddenFingerprints.build([text], "x")
    rewrite(text[:4000], hidden=hidden, public="x", language="en", history=())
    assert time.process_time() - began < 5.0


# No hidden token reaches a message


@dataclass(frozen=True)
class Fact:
    """Something hidden, and how a candidate may put it."""

    kind: str
    text: str
    spellings: tuple[str, ...]


def number_fact(value: int) -> Fact:
    return Fact(
        "number", f"{value:,}", (str(value), f"{value:,}", f"{value:,}".replace(",", " "), f"{value / 10_000:.10g}万")
    )


def word_fact(kind: str, text: str) -> Fact:
    spelled = (
        text,
        text.upper(),
        "\u200b".join(text),
        text[::-1],
        base64.b64encode(text.encode()).decode(),
        "-".join(text),
    )
    return Fact(kind, text, spelled)


LETTERS = st.text("bcdfghjklmnpqrstvwxz", min_size=5, max_size=9)
FACTS = st.one_of(
    st.integers(13_001, 10**8).map(number_fact),
    st.tuples(LETTERS, LETTERS).map(lambda w: word_fact("name", f"{w[0].capitalize()} {w[1].capitalize()}")),
    st.tuples(LETTERS, st.integers(10, 99)).map(lambda w: word_fact("file", f"{w[0]}_{w[1]}.csv")),
    st.tuples(LETTERS, st.integers(100, 999)).map(lambda w: word_fact("identifier", f"{w[0].upper()}_{w[1]}")),
    st.tuples(LETTERS, LETTERS).map(lambda w: word_fact("address", f"https://{w[0]}.example.org/{w[1]}")),
    st.text("沈欧阳若兰陆景和清越牧之程远舟晚晴", min_size=4, max_size=6).map(
        lambda t: Fact("name", t, (t, " ".join(t), "·".join(t)))
    ),
)
FILLER = st.one_of(
    st.sampled_from(
        [
            "Please look again.",
            "I can't find the file.",
            "请再看一下。",
            "还差一点",
            "Thanks!",
            "rubric",
            "62%",
            "Done.",
        ]
    ),
    st.text(max_size=20),
)


def told(fact: Fact, chinese: bool) -> str:
    return f"参照「{fact.text}」即可。" if chinese else f'It must be "{fact.text}" there.'


@st.composite
def meetings(draw: st.DrawFn) -> tuple[list[Fact], list[Fact], str, str]:
    """A task's hidden facts, those of them that are public, a candidate that mixes all with anything, a language."""
    facts = draw(st.lists(FACTS, min_size=1, max_size=4))
    public = [fact for fact in facts if draw(st.booleans())]
    spoken = st.sampled_from(facts).flatmap(lambda fact: st.sampled_from(fact.spellings))
    pieces = draw(st.lists(st.one_of(FILLER, spoken), min_size=1, max_size=6))
    candidate = draw(st.sampled_from([" ", "", ". ", "\n", "，", " - "])).join(pieces)
    return facts, public, candidate, draw(st.sampled_from(["en", "zh"]))


@settings(max_examples=150)
@given(meetings(), st.booleans())
def test_no_hidden_token_reaches_a_message(meeting: tuple[list[Fact], list[Fact], str, str], chinese: bool) -> None:
    facts, public, candidate, language = meeting
    request = "\n".join(fact.text for fact in public)
    hidden = HiddenFingerprints.build([told(fact, chinese) for fact in facts], request)
    done = rewrite(candidate, hidden=hidden, public=request, language=language, history=())
    folded, squeezed = fold(done.message), squeeze(fold(done.message))
    for fact in facts:
        if fact.text in request:
            continue
        if fact.kind == "number":
            assert not set(numbers_in(fold(fact.text))) & set(numbers_in(folded)), done
        else:
            assert squeeze(fold(fact.text)) not in squeezed, done
            assert squeeze(fold(fact.text)) not in squeezed[::-1], done
    assert done.message.strip()
    assert len(done.message) <= CHARACTERS
    assert len(split_sentences(done.message)) <= SENTENCES
    again = rewrite(done.message, hidden=hidden, public=request, language=language, history=())
    assert again.message == done.message or done.message in phrases(language)["neutral"]


@settings(max_examples=150)
@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300), st.sampled_from(["en", "zh"]))
def test_whatever_is_hidden_the_message_is_fit(hidden: str, public: str, candidate: str, language: str) -> None:
    prints = HiddenFingerprints.build([hidden], public).protecting([hidden[:20]], public)
    done = rewrite(candidate, hidden=prints, public=public, language=language, history=())
    assert prints.kinds_in(done.message) == () or done.decisions[-1] == "fallback"
    assert 0 < len(done.message.strip()) <= CHARACTERS
    assert len(split_sentences(done.message)) <= SENTENCES
    assert rewrite(done.message, hidden=prints, public=public, language=language, history=()).message == done.message
