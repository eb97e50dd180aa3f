"""What comes out of a command: the engine's frames, the line that ends it, and a bounded memory of it."""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, field

from pytest_uniclaw.sandbox.base import MIB

OUTPUT_BYTES = MIB
HEADER = struct.Struct(">BxxxL")
MARK_VARIABLE = "UNICLAW_MARK"
WRAPPER = f"""
exec 2>/dev/null; mark=${MARK_VARIABLE}; unset {MARK_VARIABLE}
(exec "$@") 2>&1
printf '\\n%s %d\\n' "$mark" "$?"
"""
"""The shell's own remarks ("Killed") are dropped; the command's stderr joins its stdout, in order."""


@dataclass
class HeadAndTail:
    """Keeps the first and the last half of ``limit`` bytes and counts what lay between."""

    limit: int = OUTPUT_BYTES
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def write(self, data: bytes) -> None:
        """Add output."""
        self.total += len(data)
        room = max(self.limit // 2 - len(self.head), 0)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.limit:
            del self.tail[:-(self.limit // 2)]

    def value(self) -> bytes:
        """Return what was kept, with a line that counts what was left out."""
        tail = bytes(self.tail[-(self.limit // 2):])
        missing = self.total - len(self.head) - len(tail)
        gap = b"\n[... %d bytes left out ...]\n" % missing if missing else b""
        return bytes(self.head) + gap + tail


class Frames:
    """Takes the engine's multiplexed stream apart."""

    def __init__(self) -> None:
        self.header = bytearray()
        self.left = 0

    def feed(self, data: bytes) -> bytes:
        """Return the payload in ``data``, whole frames or not."""
        out = bytearray()
        view = memoryview(data)
        while view:
            if self.left:
                taken = view[:self.left]
                out += taken
                self.left -= len(taken)
            else:
                taken = view[:HEADER.size - len(self.header)]
                self.header += taken
                if len(self.header) == HEADER.size:
                    self.left = HEADER.unpack(self.header)[1]
                    self.header.clear()
            view = view[len(taken):]
        return bytes(out)


class Ended:
    """Finds the line by which a wrapped command says that it ended and how.

    The engine closes a stream only two seconds after the command when something it started still holds its output,
    and then delays the next command's end as well. The line comes at once. It starts with a mark of this command
    alone, which the command itself does not see in its environment. Forging it would only end its own output early.
    """

    def __init__(self) -> None:
        self.mark = secrets.token_hex(16)
        self.needle = f"\n{self.mark} ".encode()
        self.held = b""
        self.code: int | None = None

    def wrap(self, command: list[str]) -> list[str]:
        """Return the command to run instead; it needs the mark in :data:`MARK_VARIABLE`."""
        return ["/bin/sh", "-c", WRAPPER, "sh", *command]

    def feed(self, data: bytes) -> bytes:
        """Return the output that is surely the command's own; sets ``code`` once the line is complete."""
        text = self.held + data
        at = text.find(self.needle)
        if at >= 0:
            number, newline, _ = text[at + len(self.needle):].partition(b"\n")
            self.code = int(number) if newline and number.isdigit() else None
            self.held = b"" if newline else text[at:]
            return text[:at]
        start = text.rfind(b"\n", max(len(text) - len(self.needle), 0))
        self.held = text[start:] if start >= 0 and self.needle.startswith(text[start:]) else b""
        return text[:len(text) - len(self.held)]

    def rest(self) -> bytes:
        """Return what was held back, for a stream that ended without the line."""
        rest, self.held = self.held, b""
        return rest
