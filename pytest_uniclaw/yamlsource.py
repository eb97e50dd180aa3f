"""YAML read in a way that every value still knows its line.

The data and the node tree come from one parse; lines are looked up in the nodes only when something is wrong, so a
sound file costs no more than a plain load.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytest_uniclaw.errors import TaskError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_COLON = "the line has no colon behind its field's name"
_WRITE_COLON = "write `field: value`, with a space behind the colon; indent the lines of a longer text below `field: |`"
_QUOTE = (
    "mind the indentation, and quote text that has `: `, `#`, a tab or a leading `*`, `&`, `!`, `%` or `@`; "
    "one file holds one mapping"
)
_HAS_COLON = re.compile(r"^[^#]*:(\s|$)")

Location = Sequence[str | int]
"""A way down the data: mapping keys and list positions, as in ``("services", 0, "start")``."""


@dataclass(frozen=True, slots=True)
class YamlSource:
    """One parsed YAML file: its mapping and, kept aside, the nodes that know the lines."""

    path: Path
    data: dict[str, Any]
    root: yaml.MappingNode = field(repr=False)

    def line(self, location: Location) -> int:
        """One-based line of the deepest part of ``location`` that the file has; a mapping entry is its key's line."""
        node: yaml.Node = self.root
        line = 1
        for step in location:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line

    def error(self, message: str, location: Location = (), *, remedy: str = "") -> TaskError:
        """The TaskError for a fault at ``location``, with its line and dotted field filled in."""
        return TaskError(self.path, message, line=self.line(location), field=dotted(location), remedy=remedy)


def dotted(location: Location) -> str:
    """``("services", 0, "start")`` as people write it: ``services[0].start``."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_text(path: Path) -> str:
    """The file as text. Raises TaskError when it is not there, not UTF-8, or holds a NUL."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(path, f"cannot be read: {error.strerror or error}", remedy="check the path") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.object[error.start]
        raise TaskError(
            path,
            f"byte 0x{bad:02x} is not UTF-8",
            line=error.object.count(b"\n", 0, error.start) + 1,
            remedy="save the file as UTF-8",
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TaskError(path, "holds a NUL character", line=line, remedy="remove it; task files are plain text")
    return text


def read_yaml(path: Path) -> YamlSource:
    """Parse a file that must hold exactly one mapping. Raises TaskError with the line for anything else."""
    text = read_text(path)
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            _refuse_ambiguous(path, root)
            data = loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _syntax_error(path, text, error) from error
    if not isinstance(root, yaml.MappingNode) or not isinstance(data, dict):
        what = "nothing" if data is None else f"a {type(data).__name__}"
        raise TaskError(path, f"holds {what}, not a mapping", line=1, remedy="write `field: value` lines")
    return YamlSource(path, data, root)


def _child(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def _refuse_ambiguous(path: Path, root: yaml.Node | None) -> None:
    """Duplicate keys (YAML keeps the last, silently) and NULs written as escapes."""
    seen: set[int] = set()
    stack = [root] if root is not None else []
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            if "\0" in node.value:
                line = node.start_mark.line + 1
                raise TaskError(path, "holds a NUL character", line=line, remedy="remove the \\0 escape")
        elif isinstance(node, yaml.MappingNode):
            _refuse_duplicates(path, node)
            stack.extend(part for pair in node.value for part in pair)
        else:
            stack.extend(node.value)


def _refuse_duplicates(path: Path, node: yaml.MappingNode) -> None:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in first:
            raise TaskError(
                path,
                f"is written twice (first on line {first[key.value]})",
                line=line,
                field=key.value,
                remedy="keep one of the two",
            )
        first[key.value] = line


def _syntax_error(path: Path, text: str, error: Exception) -> TaskError:
    position = getattr(error, "position", None)
    remedy = _QUOTE
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, problem, remedy = _fault(text.splitlines(), error, error.problem_mark)
    elif isinstance(position, int):
        line, problem = text.count("\n", 0, position) + 1, f"{getattr(error, 'reason', error)}"
    elif isinstance(error, RecursionError):
        line, problem = 1, "is nested too deeply"
    else:
        line, problem = 1, str(error)
    return TaskError(path, f"is not valid YAML: {problem}", line=line, remedy=remedy)


def _fault(lines: list[str], error: yaml.MarkedYAMLError, mark: yaml.Mark) -> tuple[int, str, str]:
    """(one-based line, problem, remedy) of a syntax error: where the fault is, which the parser notices later."""
    problem = error.problem or str(error)
    begins = error.context_mark or mark
    lead = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if "\t" in lead and not lead.strip():
        return mark.line + 1, "the line is indented with a tab", "indent with spaces"
    if problem == "could not find expected ':'":
        return begins.line + 1, _COLON, _WRITE_COLON
    if problem.startswith("mapping values are not allowed"):
        first = _first_without_colon(lines, mark.line)
        if first is not None:
            return first + 1, _COLON, _WRITE_COLON
    if problem == "found unexpected end of stream":
        return begins.line + 1, "a quote is opened and not closed", "close it, or quote the text as a whole"
    return mark.line + 1, problem, _QUOTE


def _first_without_colon(lines: list[str], last: int) -> int | None:
    """Zero-based first line of those straight above ``last`` that have no colon, where a field should begin.

    None where they go on a text that began behind a colon: then it is the colon on line ``last`` that is too many.
    """
    first = last
    while first and not _HAS_COLON.search(lines[first - 1]):
        first -= 1
    while first < last and not lines[first].partition("#")[0].strip():
        first += 1
    above = lines[first - 1] if first else ""
    opens = not above or re.search(r":\s*(#.*)?$", above)
    return first if first < last and opens else None
