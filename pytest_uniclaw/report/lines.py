"""Texts that reports share: a message folded to one line, and a score in words."""

from __future__ import annotations

LINE_CHARACTERS = 240
"""How long a message may be in one line of a summary."""
CUT = "…"
"""Stands where a line leaves something out."""


def one_line(text: str, limit: int = LINE_CHARACTERS) -> str:
    """Fold a message to one line of at most ``limit`` characters: ``message; fix: remedy``.

    Below a first line that ends with a colon stands an output: its last line says most, and stands for it. What is
    too long is cut at the end of the message, not of the remedy, unless the remedy alone fills half of the line.
    """
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    first_fix = next((place for place, line in enumerate(lines) if line.startswith("fix: ")), len(lines))
    message, remedy = lines[:first_fix], " ".join(lines[first_fix:])
    if len(message) > 2 and message[0].endswith(":"):
        message = [message[0], CUT, message[-1]]
    if not remedy:
        return cut(" ".join(message), limit)
    fix = f"; {cut(remedy, limit // 2)}"
    return cut(" ".join(message).rstrip(".;"), limit - len(fix)) + fix


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning with an ellipsis, in at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def score_line(status: str, score: float, threshold: float, turns: int) -> str:
    """Return ``budget_exhausted: score 0.78 < 0.90 after 3 turns``; before any turn, the status and score alone."""
    compared = f"score {score:.2f}" + (f" < {threshold:.2f}" if score < threshold else "")
    return f"{status}: {compared}" + (f" after {turns} {'turn' if turns == 1 else 'turns'}" if turns else "")
