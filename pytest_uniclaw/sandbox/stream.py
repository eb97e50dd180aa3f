"""What comes out of a command: the engine's frames, the line that ends it, and a bounded memory of it."""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Mapping, Sequence
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
SWITCH = """
/usr/bin/chown "$1" /proc/self/fd/1 2>/dev/null
account=$1; shift
exec /usr/bin/setpriv --reuid="$account" --regid="$account" --clear-groups --inh-caps=-all "$@"
"""
"""The output becomes the account's own, so that it may open ``/dev/stdout``."""
VALUE_VARIABLE = "UNICLAW_VALUE_"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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


def switched(command: Sequence[str], environment: Mapping[str, str], account: str) -> tuple[list[str], dict[str, str]]:
    """Return a command and an environment for root that run ``command`` as ``account``, a uid and gid in decimal.

    What the account wants in its environment (a library to load first) must not act on root's programs: each value
    comes under a name that means nothing and gets its own when the account has been switched.
    """
    names = [name for name in environment if NAME.fullmatch(name)]
    variables = {name: value for name, value in environment.items() if name not in names}
    variables |= {f"{VALUE_VARIABLE}{n}": environment[name] for n, name in enumerate(names)}
    own = "".join(f'export {name}="${VALUE_VARIABLE}{n}"; unset {VALUE_VARIABLE}{n}\n' for n, name in enumerate(names))
    return ["/bin/sh", "-c", SWITCH, "sh", account, "/bin/sh", "-c", f'{own}exec "$@"', "sh", *command], variables


class Ended:
    """Finds the line by which a wrapped command says that it ended and how.

    The engine closes a stream only two seconds after the command when something it started still holds its output,
    and then delays the next command's end as well; until then it does not tell the exit status either. The line comes
    at once. It starts with a mark of this command alone, which stands in the wrapping shell's first environment.

    That shell is root's where the command is an unprivileged executor's (:func:`switched`), so the executor cannot
    read the mark while its command runs; once the line is in the pipe, which is the account's, what it left running
    can, and can put another status in its place. A root executor can always write the line. Either ends its own turn
    with a status of its choice while its processes live on, which it could have by exiting with that status.
    """

    def __init__(self) -> None:
        self.mark = secrets.token_hex(16)
        self.needle = f"\n{self.mark} ".encode()
        self.line = re.compile(re.escape(self.needle) + rb"([0-9]{1,3})\n")
        self.begun = re.compile(re.escape(self.needle) + rb"[0-9]{0,3}")
        self.held = b""
        self.code: int | None = None

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command to run instead; it needs the mark in :data:`MARK_VARIABLE`."""
        return ["/bin/sh", "-c", WRAPPER, "sh", *command]

    def feed(self, data: bytes) -> bytes:
        """Return the output that is surely the command's own; sets ``code`` once the line is complete.

        A line with the mark whose number is no exit status (0 to 255) is output.
        """
        text = self.held + data
        for found in self.line.finditer(text):
            if int(found[1]) <= 255:
                self.code, self.held = int(found[1]), b""
                return text[:found.start()]
        start = text.rfind(b"\n", max(len(text) - len(self.needle) - 3, 0))
        last = text[start:] if start >= 0 else b""
        self.held = last if self.needle.startswith(last) or self.begun.fullmatch(last) else b""
        return text[:len(text) - len(self.held)]

    def rest(self) -> bytes:
        """Return what was held back, for a stream that ended without the line."""
        rest, self.held = self.held, b""
        return rest
