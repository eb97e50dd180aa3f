"""Every way in which a rubric writes weights and caps, and what is reported when it does not add up."""

from __future__ import annotations

import pickle

import pytest
from task_package import RULE

from pytest_uniclaw.rubric import Rubric, parse_rubric


def rubric(checkpoints: str, caps: str = "") -> Rubric:
    return parse_rubric(f"# Rule\n\n## 5. Checkpoint Rubric\n\n{checkpoints}\n\n## 6. Score Caps\n\n{caps}\n")


def test_our_own_form() -> None:
    parsed = parse_rubric(RULE)
    assert [(c.id, c.name, c.weight, c.text) for c in parsed.checkpoints] == [
        ("C1", "Totals", 0.6, "The totals are right."),
        ("C2", "Note", 0.4, "The note says why."),
    ]
    (cap,) = parsed.caps
    assert (cap.id, cap.value, cap.condition) == ("fabricated_rows", 0.4, "any row of the table is not in the sources")
    assert (parsed.weight_sum, parsed.formula_scored, parsed.pass_line, parsed.problems) == (1.0, False, 0.9, ())
    assert [section.kind for section in parsed.sections] == ["philosophy", "rubric", "caps", "continue"]
    lines = RULE.splitlines()
    assert "C1 Totals" in lines[parsed.checkpoints[0].line - 1]
    assert "fabricated_rows" in lines[cap.line - 1]
    assert lines[parsed.sections[1].line - 1] == "## 5. Checkpoints"
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    ("line", "identity", "name", "weight"),
    [
        ("- **0.10 — Output shape.** It parses.", "output-shape", "Output shape", 0.1),
        ("- **0.10 - Output shape.** It parses.", "output-shape", "Output shape", 0.1),
        ("- **0.125** — `a.json` exists. More.", "cp1", "a.json exists.", 0.125),
        ("- 0.20 — Covers **all** of it.", "cp1", "Covers all of it.", 0.2),
        ("- 0.15 Source use: cites both.", "source-use", "Source use", 0.15),
        ("- 0.15: cites both.", "cp1", "cites both.", 0.15),
        ("- **CP3 — File paths (0.25).** Ten of them.", "CP3", "File paths", 0.25),
        ("- **Tempo (0.20)**: within 3 BPM", "tempo", "Tempo", 0.2),
        ("- **30% — C4 Sums.** Right.", "C4", "Sums", 0.3),
        ("* **0.30 — C2. Sums.** Right.", "C2", "Sums", 0.3),
        ("1. **0.30 — C1: Sums.** Right.", "C1", "Sums", 0.3),
        ("- **0.30 — C5 结论。** 正确。", "C5", "结论", 0.3),
        ("- **0.30 — 结论。** 正确。", "cp1", "结论", 0.3),
    ],
)
def test_list_items(line: str, identity: str, name: str, weight: float) -> None:
    (checkpoint,) = rubric(line).checkpoints
    assert (checkpoint.id, checkpoint.name.rstrip("。"), checkpoint.weight) == (identity, name, weight)


def test_partial_credit_below_an_item_is_not_a_checkpoint() -> None:
    text = """Weights: 0.40
+ 0.60 = 1.00.

- **0.40 — Rows.** Award:
  - 5/5 → 0.40
  - 0.20 for four

  0.10 otherwise.
- **0.60 — Sums.** Right
wrapped without indent."""
    parsed = rubric(text)
    assert [c.weight for c in parsed.checkpoints] == [0.4, 0.6]
    assert "0.10 otherwise" in parsed.checkpoints[0].text
    assert parsed.checkpoints[1].text.endswith("without indent.")


@pytest.mark.parametrize(
    ("header", "row", "identity", "name"),
    [
        ("| ID | What matters | Weight |", "| CP1 | The grid is complete. | 1.00 |", "CP1", "The grid is complete."),
        ("| Weight | Checkpoint |", "| 1.00 | **Root causes.** All four. |", "root-causes", "Root causes"),
        ("| # | Weight | Line |", "| 1 | 1.0 | `a|b` holds. |", "cp1", "a|b holds."),
        ("| ID | Points (weight) | Line |", r"| C9 | **100%** | a \| b |", "C9", r"a \| b"),
    ],
)
def test_tables(header: str, row: str, identity: str, name: str) -> None:
    (checkpoint,) = rubric(f"{header}\n| --- | :-: | --- |\n{row}").checkpoints
    assert (checkpoint.id, checkpoint.name, checkpoint.weight) == (identity, name, 1.0)


def test_headings_with_shares_win_over_the_tables_below_them() -> None:
    text = """### 5.1 (40%) Schema

| Case | Award | Weight |
|---|---|---|
| exact | full | 40% |
| near | half | 20% |

### 5.2 (60%) Counts

Body."""
    parsed = rubric(text)
    assert [(c.id, c.weight) for c in parsed.checkpoints] == [("schema", 0.4), ("counts", 0.6)]
    assert "near" in parsed.checkpoints[0].text


def test_of_two_rubric_sections_the_one_that_adds_up_is_taken() -> None:
    text = """## 4. Scoring (canonical)

- 0.5 — half

## 5. Checkpoint Rubric

- **0.9 — Most.** a

## 6. Figure Rubric

- **0.4 — Axes.** a
- **0.6 — Curves.** b
"""
    assert [c.id for c in parse_rubric(text).checkpoints] == ["axes", "curves"]


def test_an_untitled_list_that_adds_up_is_found() -> None:
    text = "## 3. What is measured\n\n- 0.5 — a\n- 0.5 — b\n"
    assert [c.weight for c in parse_rubric(text).checkpoints] == [0.5, 0.5]


def test_a_game_is_formula_scored() -> None:
    text = """### Integrity checks

- If the game is replaced, cap at 0.20.

### Scoring policy

    final_score = safe_cells / 81"""
    parsed = parse_rubric(f"## 4. Checkpoint Rubric\n\n{text}\n")
    assert (parsed.formula_scored, parsed.checkpoints, parsed.problems) == (True, (), ())
    assert [(c.value, c.condition) for c in parsed.caps] == [(0.2, "the game is replaced")]


@pytest.mark.parametrize(
    ("line", "value", "condition"),
    [
        ("- **Cap at 0.20 — No answer.** Nothing is there.", 0.2, "No answer. Nothing is there"),
        ("- **cap at `0.55`** if nothing was saved", 0.55, "nothing was saved"),
        ("- Nothing was saved → cap total at 0.30.", 0.3, "Nothing was saved"),
        ("- If nothing was saved, cap the total score at **0.30**.", 0.3, "nothing was saved"),
        ("- Nothing was saved -> 0.30", 0.3, "Nothing was saved"),
        ("- **0.30** — Nothing was saved.", 0.3, "Nothing was saved"),
        ("- **0.30 — No file.** Nothing was saved.", 0.3, "No file. Nothing was saved"),
        ("- **score 0** if the answer is a pass.", 0.0, "the answer is a pass"),
        ("- Cap 40%: nothing was saved", 0.4, "nothing was saved"),
        ("| Condition | Cap |\n|---|---|\n| Nothing saved | cap at 0.40 |", 0.4, "Nothing saved"),
        ("If nothing was saved, the score is capped at 0.40.", 0.4, "nothing was saved, the score is"),
        ("- **0.30 cap — No file.** Nothing was saved.", 0.3, "No file. Nothing was saved"),
        ("- Nothing was saved → 0.40 (it is made up).", 0.4, "Nothing was saved"),
        ("- Nothing was saved → 0.55 cap (another way was taken).", 0.55, "Nothing was saved"),
        ("- Nothing was saved → cap the picture line at 0 AND total at 0.70.", 0.7, "Nothing was saved"),
        ("- Fail to `0.0` if nothing was saved.", 0.0, "nothing was saved"),
        ("Answers without a file should not exceed 0.55.", 0.55, "Answers without a file"),
        ("A score above 0.80 requires a file; and a map.", 0.8, "this is not so: a file; and a map"),
        ("A pass needs a file. If nothing was saved, cap that attempt at 0.40.", 0.4, "nothing was saved"),
    ],
)
def test_caps(line: str, value: float, condition: str) -> None:
    (cap,) = rubric("- **1.00 — All.** x", line).caps
    assert (cap.value, cap.condition) == (value, condition)


def test_cap_ids() -> None:
    caps = """- **wrong_source** — cap at 0.30 if so.
- **Cap at 0.20 — No answer.** x
- cap at 0.1 if y
- **0.40 cap — No plan.** z
"""
    assert [cap.id for cap in rubric("- 1.0 — a", caps).caps] == ["wrong_source", "no-answer", "cap3", "no-plan"]


def test_a_paragraph_with_several_caps_is_split_by_sentence() -> None:
    caps = "Pass threshold is 0.88. If it is missing, cap at 0.40. If it is late, cap at 0.70."
    parsed = rubric("- 1.0 — a", caps)
    assert [(c.value, c.condition) for c in parsed.caps] == [(0.4, "it is missing"), (0.7, "it is late")]
    assert parsed.pass_line == 0.88


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- cap at 0.85 if the pick is B; without a reason, cap 0.70.",
         [(0.85, "the pick is B"), (0.7, "the pick is B; without a reason")]),
        ("- If the map is blank; or mirrored, cap at 0.65; for a broken one, cap at 0.50.",
         [(0.65, "the map is blank; or mirrored"), (0.5, "the map is blank; or mirrored; for a broken one")]),
        ("- **Cap at 0.55 - Wrong year.** One film is of a wrong year. If this holds for two films, cap at 0.40.",
         [(0.55, "Wrong year. One film is of a wrong year"),
          (0.4, "Wrong year. One film is of a wrong year; this holds for two films")]),
        ("- Cap at 0.70 if the year is wrong. Cap at 0.80 instead if it is near.",
         [(0.7, "the year is wrong"), (0.8, "it is near")]),
        ("Thin answers must not exceed 0.55. Missing one issue caps at 0.70.",
         [(0.55, "Thin answers"), (0.7, "Missing one issue")]),
    ],
)  # fmt: skip
def test_several_caps_in_one_line_are_parted(line: str, expected: list[tuple[float, str]]) -> None:
    """A part that refers back to the one before it says of what it speaks."""
    assert [(cap.value, cap.condition) for cap in rubric("- 1.0 — a", line).caps] == expected


@pytest.mark.parametrize(
    "line",
    [
        "- A run passes if the capped score is >= 0.90.",
        "Therefore any cap of `0.84` or lower makes the verdict `fail`.",
        "- A file must not exceed 0.5 MB.",
        "- No cap applies and the score is 0.95.",
        "- No cap below 0.90 applies.",
        "- See the caps in §6.",
        "- Cap the screenshot checkpoint at 0.20.",
        "- Take min(raw, cap1, cap2).",
    ],
)
def test_sentences_about_caps_are_none(line: str) -> None:
    assert rubric("- 1.0 — a", line).caps == ()


@pytest.mark.parametrize(
    ("checkpoints", "caps", "words"),
    [
        ("- **0.5 — A.** x\n- **0.4 — B.** y", "", "line 5: the weights sum to 0.9, not to 1.00"),
        ("- **0.5 — C1 A.** x\n- **0.5 — C1 B.** y", "", "line 6: checkpoint id C1 is used twice"),
        ("- **0.0 — A.** x\n- **1.0 — B.** y", "", "line 5: weight 0 of a"),
        ("- **1.0 — A.** x", "- **made_up** — not good", "line 9: cap made_up states no value"),
        ("- **1.0 — A.** x", "- **a_b** — cap at 0.1 if a\n- **a_b** — cap at 0.2 if b", "cap id a_b is used twice"),
        ("- **1.0 — A.** x", "- cap at 1 if b", "cap cap1 at 1"),
        ("Nothing here.", "", "line 3: no weighted checkpoint found"),
        ("- **1.0 — A.** x", "- Pass at >= 0.85.\n\n## 7. Continue vs Fail\n\n- Pass at >= 0.90.", "0.85, 0.9"),
    ],
)
def test_what_does_not_add_up_is_listed(checkpoints: str, caps: str, words: str) -> None:
    problems = rubric(checkpoints, caps).problems
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize(
    "text", ["", "no sections", "## 5. Checkpoints\n```\nopen fence", "## \n|||\n|-|\n", "\x00" * 9]
)
def test_nothing_raises(text: str) -> None:
    assert parse_rubric(text).checkpoints == ()


def test_fenced_headings_are_text() -> None:
    assert len(parse_rubric("## 1. A\n```\n## not one\n```\n## 2. B\n").sections) == 2
