"""From an order to an answer: which tool it names, within which limits it runs, and what it may not do to the caller.

Whatever the workspace holds, an order ends in one answer. What cannot be had is a text in ``error``: a missing file, a
damaged document, time or memory used up, even a fault of the tools themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from .common import MIB, SURROGATES, TEXT_BYTES, Answer, Arguments, TimeUp, ToolError
from .places import Root

ORDER_BYTES = 16 * MIB
SECONDS = 60.0
SEARCH_SECONDS = 20.0
"""A search returns what it has found after this long: patterns can be slow for ever."""
MEMORY = 768 * MIB

TOOLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "list_files": ("listing", ("path", "depth", "offset")),
    "read_file": ("texts", ("path", "offset", "limit")),
    "search": ("searching", ("pattern", "path", "offset")),
    "find_quotes": ("searching", ("quotes",)),
    "view_image": ("pictures", ("path", "page", "box")),
    "read_table": ("tables", ("path", "sheet", "first_row", "rows")),
    "query_database": ("database", ("path", "sql", "offset")),
    "media_info": ("media", ("path",)),
    "media_frame": ("media", ("path", "seconds")),
}
"""Name of a tool, which is that of its function, to its module and the arguments it takes."""


def main() -> int:
    """Answer the order on standard input."""
    out = private_output()
    data = json.dumps(answer(sys.stdin.buffer.readline(ORDER_BYTES))).encode("ascii") + b"\n"
    while data:
        data = data[os.write(out, data) :]
    return 0


def private_output() -> int:
    """Return the real standard output; what libraries and programs print goes nowhere."""
    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return out


def answer(line: bytes) -> dict[str, Any]:
    """Carry out an order and return the answer as it is printed."""
    got, error = Answer(), None
    try:
        order = read_order(line)
        with limited(order):
            got = carry_out(order)
    except ToolError as refusal:
        error = str(refusal)
    except TimeUp:
        error = "it took too long and was stopped; ask for less at a time"
    except MemoryError:
        error = "it would take more memory than there is; ask for less at a time"
    except OSError as failure:
        error = f"it could not be read: {failure.strerror or failure}"
    except Exception as fault:
        error = f"the tool failed: {type(fault).__name__}: {str(fault)[:300]}"
    shown = {"text": bounded(got.text), "images": got.images, "next_offset": got.next_offset}
    return {**shown, "error": error and bounded(error)} | ({} if got.found is None else {"found": got.found})


def read_order(line: bytes) -> dict[str, Any]:
    """Parse an order. Raises ToolError."""
    try:
        order = json.loads(line)
    except ValueError as error:
        raise ToolError(f"the order is not one line of JSON: {error}") from None
    if not isinstance(order, dict) or not isinstance(order.get("arguments", {}), dict):
        raise ToolError("the order is not an object with arguments")
    return order


def carry_out(order: Mapping[str, Any]) -> Answer:
    """Call the tool. Raises ToolError and whatever goes wrong in it."""
    name = str(order.get("tool"))
    if name not in TOOLS:
        raise ToolError(f"there is no tool {name!r}; the tools are {', '.join(sorted(TOOLS))}")
    module, known = TOOLS[name]
    arguments = Arguments(name, order.get("arguments") or {}, known)
    function = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    found: Answer = function(Root(str(order.get("root") or "/workspace")), arguments)
    return found


@contextlib.contextmanager
def limited(order: Mapping[str, Any]) -> Iterator[None]:
    """Bound time, by TimeUp, and memory."""
    seconds = float(order.get("seconds") or SECONDS)
    if order.get("tool") == "search":
        seconds = min(seconds, SEARCH_SECONDS)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = int(order.get("memory") or MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))
    signal.signal(signal.SIGALRM, raise_time_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def raise_time_up(number: int, frame: FrameType | None) -> None:
    """End what runs."""
    raise TimeUp


def bounded(text: str) -> str:
    """Return valid Unicode of at most TEXT_BYTES in UTF-8; the tools page, so this cuts only long single things."""
    data = SURROGATES.sub("\ufffd", text).encode()
    if len(data) <= TEXT_BYTES:
        return data.decode()
    note = "\n[cut: the answer was too long]"
    return data[: TEXT_BYTES - len(note)].decode(errors="ignore") + note
