"""The rewriter: what it must drop, what it must leave alone, and that it never holds or utters what it protects."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_uniclaw.judge.fingerprints import HiddenFingerprints, fold
from pytest_uniclaw.judge.firewall import fingerprints_of
from pytest_uniclaw.judge.numbers import chinese_value, english_value, numbers_in
from pytest_uniclaw.judge.phrases import phrases
from pytest_uniclaw.judge.rewriter import CHARACTERS, Rewritten, rewrite
from pytest_uniclaw.task import load_task

PUBLIC = (
    "I look after 14 Harbour Lane. Please write `report.md` with the April totals in /tmp_workspace/results/ and list "
    "the 200 largest bookings, and compare the quarterly growth rates of both branches."
)
PUBLIC_ZH = "我在整理青石巷14号的账，请把四月的合计写进 /tmp_workspace/results/报告.md，并列出最大的200笔。"
HIDDEN = """# Rules
## 4. Ground Truth
The grand total must be 1,284,500 pounds and the quarterly surplus peaked shortly before December in the northern one.
The payee is Ottilie Brannigan and the booking reference is INV_7741-K; see https://ledger.example.org/q4 and
write to audit@calder.example. The title of the memo is "Lantern Street Refund". Compare with answers_final.json.
The plumber is Brambleford.
季度盈余在十二月之前不久于北方分店达到最高点，收款人是「欧阳若兰」。合计为四十二万三千元。
"""
ANSWERS = '{"tenant": "Marta Kowalczyk", "street": "cedarwood", "landlord": "沈书言", "rate": 0.0475, "days": 30}'
SECRETS = HiddenFingerprints.build([HIDDEN, ANSWERS], PUBLIC + PUBLIC_ZH)
SAFE = "Please read my request again."
SAFE_ZH = "请把我的要求再读一遍。"


def run(candidate: str, *, language: str = "en", history: tuple[str, ...] = (), public: str = PUBLIC) -> Rewritten:
    return rewrite(candidate, hidden=SECRETS, public=public, language=language, history=history)


LEAKS = {
    "passage": ("passage", "Note that the quarterly surplus peaked shortly before the summer."),
    "number": ("number", "I expected 1284500 in the last line."),
    "number grouped": ("number", "I expected 1 284 500 there."),
    "number scaled": ("number", "I expected about 1.2845 million there."),
    "number full width": ("number", "I expected １，２８４，５００ there."),
    "number chinese": ("number", "The sum is 128.45万."),
    "number words": ("number", "It should be four hundred and twenty-three thousand."),
    "number in percent": ("number", "The rate is 4.75%."),
    "name": ("name", "Who is Ottilie Brannigan?"),
    "name lower": ("name", "have you heard of ottilie   brannigan"),
    "name zero width": ("name", "Who is Otti\u200blie Bran\u2060nigan?"),
    "name bidi": ("name", "Who is \u202eOttilie Brannigan\u202c?"),
    "single name": ("name", "Did you call Brambleford?"),
    "title": ("name", "See the lantern street refund memo."),
    "json value": ("name", "Marta Kowalczyk lives there."),
    "json word": ("name", "It is made of cedarwood."),
    "identifier": ("identifier", "Look for inv_7741-k in the books."),
    "url": ("address", "Have a look at https://ledger.example.org/q4 please."),
    "mail": ("address", "Ask audit@calder.example about it."),
    "file": ("file", "Compare with answers_final.json first."),
}
LEAKS_ZH = {
    "passage": ("passage", "我记得季度盈余在十二月之前不久于哪里最高。"),
    "passage with spaces": ("passage", "我记得季 度 盈 余 在 十 二 月 之 前 不 久。"),
    "name": ("name", "收款人应该是欧阳若兰吧。"),
    "json name": ("name", "房东是沈书言。"),
    "numeral": ("number", "合计应该是423000。"),
    "numeral words": ("number", "合计应该是四十二万三千。"),
    "numeral short": ("number", "合计应该是42.3万。"),
}


@pytest.mark.parametrize(("kind", "text"), LEAKS.values(), ids=LEAKS)
def test_hidden_content_is_dropped(kind: str, text: str) -> None:
    done = run(f"{SAFE}\n{text}")
    assert done.message == SAFE
    assert f"dropped:{kind}" in done.decisions


@pytest.mark.parametrize(("kind", "text"), LEAKS_ZH.values(), ids=LEAKS_ZH)
def test_hidden_content_is_dropped_in_chinese(kind: str, text: str) -> None:
    done = run(f"{SAFE_ZH}{text}", language="zh", public=PUBLIC_ZH)
    assert done.message == SAFE_ZH
    assert f"dropped:{kind}" in done.decisions


META = [
    "Your score is too low.", "The rubric wants more.", "One checkpoint is missing.", "The supervisor was not happy.",
    "The grader could not read it.", "The verdict was continue.", "You have 62/100 so far.", "You got 0.62 out of 1.",
    "You are at 62% now.", "You reached 4 of 6 parts.", "It is worth 15 points.", "This benchmark is strict.",
    "The ｓｃｏｒｅ is low.", "Your sco\u200bre is low.", "The hidden files differ.", "The ground truth differs.",
]
META_ZH = [
    "你的得分太低了。", "评分标准里还有一条。", "有一个检查点没过。", "你现在是62分。", "评审不满意。",
    "目前达到百分之六十。", "标准答案不是这样。", "监督者说不行。", "评\u200b分不高。",
]  # fmt: skip


@pytest.mark.parametrize("text", META)
def test_grading_talk_is_dropped(text: str) -> None:
    assert run(f"{SAFE}\n{text}").message == SAFE


@pytest.mark.parametrize("text", META_ZH)
def test_grading_talk_is_dropped_in_chinese(text: str) -> None:
    assert run(f"{SAFE_ZH}{text}", language="zh", public=PUBLIC_ZH).message == SAFE_ZH


@pytest.mark.parametrize(
    "text",
    ["Done.", "The task is complete.", "You have passed!", "Everything is done now.", "No further changes are needed.",
     "I have finished the request.", "任务完成。", "已经完成。", "你通过了。", "没有问题了。"],
)  # fmt: skip
def test_an_announcement_of_the_end_is_dropped(text: str) -> None:
    done = run(f"{SAFE}\n{text}")
    assert (done.message, "dropped:completion" in done.decisions) == (SAFE, True)


HARMLESS = [
    "I can't find report.md in the results folder. Could you have a look?",
    "Please compare the quarterly growth rates of both branches once more, I think one is off.",
    "There were 200 bookings in my list, please check that 14 Harbour Lane is in it.",
    "Thanks for the quick reply! Please go through the April totals again.",
    "Could you complete the list and explain how you got there?",
]
HARMLESS_ZH = [
    "报告.md 里好像少了几笔，请再核对一下。",
    "谢谢，不过最大的200笔好像没有列全。请从头再对一遍。",
    "花了十分钟看了看，还是觉得不太对，请再检查一下四月的合计。",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_message_is_left_alone(text: str) -> None:
    done = run(text)
    assert done.message == text
    assert all(decision.startswith("kept:") for decision in done.decisions)


@pytest.mark.parametrize("text", HARMLESS_ZH)
def test_a_harmless_chinese_message_is_left_alone(text: str) -> None:
    assert run(text, language="zh", public=PUBLIC_ZH).message.replace(" ", "") == text.replace(" ", "")


def test_words_of_the_public_request_are_the_users_own() -> None:
    public = "Write a benchmark of both libraries and give each a score; 62% is the figure of last year."
    done = run("Please redo the benchmark and the score. Last year it was 62%.", public=public)
    assert done.message == "Please redo the benchmark and the score. Last year it was 62%."


def test_a_leak_across_two_sentences_is_found() -> None:
    done = run("The quarterly surplus peaked. Shortly before December.")
    assert done.message in phrases("en")["neutral"]
    assert done.decisions == ("dropped:passage", "fallback")


def test_what_was_said_before_is_not_said_again() -> None:
    history = ("Thanks.\nPlease read my request again.",)
    done = run("Please read my request again! Please look at the totals.", history=history)
    assert done.message == "Please look at the totals."
    assert "dropped:duplicate" in done.decisions
    assert run(f"{SAFE} {SAFE}").message == SAFE


def test_a_message_is_short() -> None:
    sentences = [f"Please look at part {word} of it." for word in ("alpha", "bravo", "charlie", "delta", "echo")]
    done = run(" ".join(sentences))
    assert done.message.count(".") <= 3
    assert "dropped:length" in done.decisions
    assert len(run("x " * 5000).message) <= CHARACTERS


def test_secrets_are_dropped() -> None:
    for secret in ("sk-proj-abcdefgh12345678", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "Bearer abcdefghij1234"):
        assert run(f"{SAFE} Use {secret} there.").message == SAFE


@pytest.mark.parametrize("candidate", ["", "   \n", "...", "\u200b", "Done.", "\ud800"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_empty_candidate_becomes_a_neutral_line(candidate: str, language: str) -> None:
    done = run(candidate, language=language)
    assert done.message == phrases(language)["neutral"][0]
    assert done.decisions[-1] == "fallback"


def test_neutral_lines_are_not_repeated_until_they_run_out() -> None:
    history: list[str] = []
    for _ in range(6):
        history.append(run("", history=tuple(history)).message)
    assert history == [*phrases("en")["neutral"], *phrases("en")["last_resort"] * 2]


def test_decisions_and_fingerprints_hold_nothing_in_the_clear() -> None:
    done = run("Ottilie Brannigan paid 1,284,500 for INV_7741-K.")
    assert set(done.decisions) <= {"dropped:name", "dropped:number", "dropped:identifier", "fallback"}
    stored = pickle.dumps(SECRETS) + repr(SECRETS).encode()
    for value in ("Ottilie", "ottilie", "1284500", "7741", "cedarwood", "ledger.example", "盈余"):
        assert value.encode() not in stored
    other = HiddenFingerprints.build([HIDDEN], PUBLIC)
    assert not other.marks & SECRETS.marks


def test_fingerprints_of_a_package_cover_every_reference_and_no_binary(tmp_path: Path) -> None:
    yaml = tmp_path / "suites" / "101_skill_usage" / "task_a.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text(
        "task_id: task_a\ncategory: 101_skill_usage\ntask: Write report.md for Ines Falk\n"
        "references: [references/eval_rule.md]\n"
    )
    references = tmp_path / "injection" / "101_skill_usage" / "task_a" / "references"
    (references / "deep").mkdir(parents=True)
    (references / "eval_rule.md").write_text("The answer is from Ines Falk and costs 5311 in all.")
    (references / "deep" / "secret_list.json").write_text('["Pelle Thorsby"]')
    (references / "picture.bin").write_bytes(b"\0 Gunnar Lindqvist 8812")
    task = load_task(yaml)
    (references / "link.md").symlink_to("/etc/passwd")
    found = fingerprints_of(task)
    assert found.kinds_in("It costs 5,311.") == ("number",)
    assert found.kinds_in("Ask Pelle Thorsby.") == ("name",)
    assert found.kinds_in("See secret_list.json.") == ("file", "identifier")
    assert found.kinds_in("Ask Ines Falk or Gunnar Lindqvist, 8812.") == ()
    assert found.kinds_in("root lives in /bin/bash") == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,284,500", ["1284500"]), ("1.5k", ["1500"]), ("3 million", ["3000000"]), ("0.50", ["0.5"]), (".5", ["0.5"]),
        ("2.5%", ["0.025", "2.5"]), ("在2024年5月", ["2024", "5"]), ("12ab34", []), ("img_2041.jpg", []), ("c1", []),
        ("42万", ["420000"]), ("forty-two", ["42"]), ("three thousand and five", ["3005"]), ("007", ["7"]),
        ("1 284 500 rows", ["1284500"]), ("v1.2.3", []),
    ],
)  # fmt: skip
def test_numbers_by_value(text: str, values: list[str]) -> None:
    assert list(numbers_in(text)) == values


@pytest.mark.parametrize(
    ("numeral", "value"),
    [("四十二万三千", 423_000), ("十二", 12), ("一百零五", 105), ("一亿三千万", 130_000_000), ("二〇二六", 2026),
     ("一万亿", 10**12), ("两千零二十六", 2026), ("三十万零五", 300_005)],
)  # fmt: skip
def test_chinese_numerals(numeral: str, value: int) -> None:
    assert chinese_value(numeral) == value


def test_english_number_words() -> None:
    assert english_value("one hundred and twenty-three million four thousand and six") == 123_004_006


@given(st.text())
def test_folding_is_stable(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@settings(max_examples=80)
@given(
    pieces=st.lists(
        st.one_of(
            st.text(max_size=40),
            st.sampled_from([text for _, text in [*LEAKS.values(), *LEAKS_ZH.values()]] + META + META_ZH + HARMLESS),
        ),
        max_size=8,
    ),
    glue=st.sampled_from(["", " ", "\n", ". ", "。"]), language=st.sampled_from(["en", "zh"]),
)  # fmt: skip
def test_whatever_comes_in_nothing_hidden_goes_out(pieces: list[str], glue: str, language: str) -> None:
    done = run(glue.join(pieces), language=language)
    assert done.message.strip()
    assert len(done.message) <= CHARACTERS
    assert SECRETS.kinds_in(done.message) == ()
    assert done == run(glue.join(pieces), language=language)
    again = run(done.message, language=language)
    assert again.message == done.message
    done.message.encode("utf-8")
