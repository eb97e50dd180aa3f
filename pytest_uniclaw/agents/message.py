"""The user's message as an agent can take it: any text, of any length, that no agent reads as its own command."""

from __future__ import annotations

from pathlib import Path

from pytest_uniclaw.sandbox.base import Entry, Sandbox

MAX_ARGUMENT_BYTES = 100_000
"""Longer messages travel as a file: Linux refuses one argument of 131,072 bytes or more."""
MESSAGE_FILE = "message.md"
BLANK = "Please go on."


def plain_text(message: str, marks: tuple[str, ...] = ()) -> str:
    """Return a message that can be an argument or standard input, and that the agent takes as a message.

    NULs and lone surrogates cannot be passed; a first character of ``marks`` would be read as one of the agent's own
    commands.
    """
    text = message.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
    if not text.strip():
        return BLANK
    return f"Message: {text}" if marks and text.lstrip().startswith(marks) else text


def is_long(text: str) -> bool:
    """Whether a text is too long to be an argument."""
    return len(text.encode()) > MAX_ARGUMENT_BYTES


def message_file(sandbox: Sandbox, text: str) -> tuple[Entry, str]:
    """Return the file in the workspace that a long message travels as, and the message that points to it."""
    path = f"{sandbox.paths.workspace}/{MESSAGE_FILE}"
    pointer = f"The full request is in the file {path}. Read that file to its end first, then do what it asks."
    return Entry(path, content=text.encode(), user=sandbox.user), pointer


def note_message_file(log: Path) -> None:
    """Say in a turn's log that the message was passed as a file."""
    with log.open("ab") as file:
        file.write(f"\n[uniclaw: the message was passed as {MESSAGE_FILE}]\n".encode())
