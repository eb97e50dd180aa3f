"""``list_files``: what there is to read."""

from __future__ import annotations

import itertools

from .common import Answer, Arguments, go_on, page
from .places import Entry, Root, inside

DEPTH, DEEPEST = 3, 64
ENTRIES = 200_000
"""Most entries that are looked at."""
PAGE_ENTRIES = 500


def list_files(root: Root, arguments: Arguments) -> Answer:
    """List a folder's entries down to ``depth`` levels, 500 at a time from ``offset`` on."""
    path = root.find(arguments.text("path", "."))
    depth = arguments.whole("depth", DEPTH, 1, DEEPEST)
    offset = arguments.whole("offset", 0, 0, ENTRIES)
    if not path.is_dir():
        return Answer(line_of(root.entry(path), depth))
    entries = list(itertools.islice(root.walk(path, depth), ENTRIES + 1))
    lines, following = page((line_of(entry, depth) for entry in entries[:ENTRIES]), offset, PAGE_ENTRIES)
    more = f"more than {ENTRIES}" if len(entries) > ENTRIES else str(len(entries))
    cut = f"; these are {offset + 1} to {offset + len(lines)}" if len(lines) < len(entries) else ""
    head = f"[{root.name_of(path)}: {more} entries to depth {depth}{cut}]"
    return Answer("\n".join([head, *lines]) + go_on(following), next_offset=following)


def line_of(entry: Entry, depth: int) -> str:
    """Describe an entry; a folder whose content is not listed says how much it holds."""
    if entry.kind == "file":
        return f"{entry.name}  {entry.size} bytes"
    if entry.kind == "other":
        return f"{entry.name}  ({entry.note})"
    held = f"  ({len(inside(entry.path))} entries, not listed)" if entry.depth == depth else ""
    return f"{entry.name}/{held}"
