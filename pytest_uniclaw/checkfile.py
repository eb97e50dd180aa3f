"""A file of checks, read without running it: its check functions with their marks, and what it imports."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KINDS = ("checkpoint", "cap", "fatal")
"""The marks of which a check bears exactly one."""
PREFIX = "check_"
"""How the name of a check and of its file begins."""
GRADER_PYTHON = (3, 11)
"""The Python that runs the checks."""
GRADER_MODULES: Mapping[str, str] = {
    "PIL": "pillow", "_pytest": "pytest", "certifi": "certifi", "charset_normalizer": "charset-normalizer",
    "docx": "python-docx", "et_xmlfile": "et-xmlfile", "idna": "idna", "imageio_ffmpeg": "imageio-ffmpeg",
    "iniconfig": "iniconfig", "lxml": "lxml", "openpyxl": "openpyxl", "packaging": "packaging", "pluggy": "pluggy",
    "pptx": "python-pptx", "pygments": "pygments", "pypdf": "pypdf", "pytest": "pytest", "requests": "requests",
    "typing_extensions": "typing-extensions", "urllib3": "urllib3", "xlsxwriter": "xlsxwriter", "yaml": "pyyaml",
}  # fmt: skip
"""Modules of the grading image beside the standard library, each with the requirement that brings it."""
_BINDERS = frozenset({"exec", "globals", "setattr"})
"""Names by which a module may get functions that no statement defines."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One ``@pytest.mark.<kind>("value")``.

    ``value`` is empty when the mark is certain to hold no text, None when only running the file tells.
    """

    kind: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """One check function; ``opaque`` means that a decorator or ``pytestmark`` may give it marks that are not seen."""

    function: str
    line: int
    marks: tuple[Mark, ...]
    opaque: bool

    @property
    def undecided(self) -> bool:
        """Whether only running it shows what it decides."""
        return any(mark.value is None for mark in self.marks) if self.marks else self.opaque


@dataclass(frozen=True, slots=True)
class CheckFile:
    """What one file says before it runs.

    ``hiding`` are the lines of statements that may define checks out of sight.
    """

    path: Path
    checks: tuple[Check, ...]
    hiding: tuple[int, ...]

    @property
    def opaque(self) -> bool:
        """Whether running the file may show checks or marks that are not seen here."""
        return bool(self.hiding) or any(check.undecided for check in self.checks)

    @property
    def runs(self) -> bool:
        """Whether the file's name lets its checks run."""
        return self.path.name.startswith(PREFIX)


def read_checks(path: Path) -> CheckFile:
    """Parse one file. Raises SyntaxError, ValueError (a NUL) or RecursionError."""
    tree = _parsed(path)
    marked = any(isinstance(node, ast.Assign | ast.AnnAssign) and _binds(node, "pytestmark") for node in tree.body)
    checks = tuple(_check(node, marked) for node in tree.body if _is_check(node))
    hiding = tuple(node.lineno for node in tree.body if not _is_definition(node) and _hides(node))
    return CheckFile(path, checks, hiding)


def read_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the top name and the line of each absolute import of a file. Raises as :func:`read_checks` does."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno


def is_foreign(module: str) -> bool:
    """Whether a module of this top name is neither in the standard library nor in the grading image."""
    return module not in sys.stdlib_module_names and module not in GRADER_MODULES


def _parsed(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(path.read_bytes(), str(path), feature_version=GRADER_PYTHON)


def _is_definition(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _is_check(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(PREFIX)


def _check(node: ast.stmt, marked: bool) -> Check:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    found = [_mark(decorator) for decorator in node.decorator_list]
    marks = tuple(mark for mark in found if mark is not None and mark.kind in KINDS)
    return Check(node.name, node.lineno, marks, marked or None in found)


def _mark(decorator: ast.expr) -> Mark | None:
    """Return the mark of a decorator, of whatever kind; None when the decorator is not seen to be a mark."""
    call = decorator if isinstance(decorator, ast.Call) else None
    name = call.func if call else decorator
    if isinstance(name, ast.Attribute) and ast.unparse(name.value) in {"mark", "pytest.mark"}:
        return Mark(name.attr, _text(call))
    return None


def _text(call: ast.Call | None) -> str | None:
    if call is None or call.keywords or len(call.args) != 1:
        return ""
    (value,) = call.args
    if isinstance(value, ast.Constant):
        return value.value.strip() if isinstance(value.value, str) else ""
    return None


def _hides(node: ast.stmt) -> bool:
    """Whether a statement that is no definition may bind a name like a check's."""
    for part in ast.walk(node):
        if _is_check(part) or _binds(part, PREFIX) or (isinstance(part, ast.Name) and part.id in _BINDERS):
            return True
        if isinstance(part, ast.alias) and (part.name == "*" or (part.asname or part.name).startswith(PREFIX)):
            return True
    return False


def _binds(node: ast.AST, prefix: str) -> bool:
    """Whether a name with this prefix is assigned anywhere in ``node``."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    return any(name.id.startswith(prefix) for name in names)
