"""Imports point left only: values <- adapters <- loop <- pytest layer and cli (design section 3)."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_uniclaw"

VALUES = {
    "__init__", "errors", "paths", "task", "schema", "assets", "yamlsource", "extension", "markdown", "rubric",
    "rubric_lines", "privacy", "redaction", "package", "prompts", "lint", "verdict", "attempt", "status", "budget",
    "settings", "optiontable", "modelchoice", "checkfile", "installed",
}  # fmt: skip
ADAPTERS = {
    "models", "sandbox", "agents", "judge", "report", "store", "scrub", "preexec", "extensions", "spec", "executor",
    "provisioning", "roles", "tape", "desktop", "recording",
}  # fmt: skip
LOOP = {"turn", "record", "loop", "regrade"}
TOP = {
    "plugin", "collection", "fixtures", "outcome", "options", "session", "preflight", "controller", "progress", "html",
    "terminal", "cli", "commands", "doctor", "selection", "soundness", "rolecheck",
}  # fmt: skip
RANKS = {name: rank for rank, names in enumerate((VALUES, ADAPTERS, LOOP, TOP)) for name in names}

OWNERS = {"docker": {"sandbox"}, "aiohttp": {"models"}, "openai": {"models"}}
"""Third-party packages that only one part may import."""

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if {"harness", "skills", "_docker"}.isdisjoint(p.parts))


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_left(path):
    own = RANKS[part_of(path)]
    for name in imports_of(path):
        root, _, rest = name.partition(".")
        if root == "pytest_uniclaw" and rest:
            target = rest.split(".")[0]
            assert RANKS.get(target, 0) <= own, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_foreign_packages_have_one_owner(path):
    for name in imports_of(path):
        root = name.split(".")[0]
        assert part_of(path) in OWNERS.get(root, {part_of(path)}), f"{path.name} imports {name}"
        if root in {"pytest", "_pytest"}:
            assert RANKS[part_of(path)] == 3, f"{path.name} imports pytest below the pytest layer"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_environment_is_read_in_settings_alone(path):
    if path.stem == "settings":
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
            assert not (isinstance(node.value, ast.Name) and node.value.id == "os"), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_temporary_folder_belongs_to_a_run_or_lies_in_a_given_folder(path):
    """The reaper finds what bears the run's prefix; set-up, which is no run, is excepted."""
    if path.relative_to(PACKAGE) == Path("sandbox", "base_image.py"):
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("TemporaryDirectory", "mkdtemp", "mkstemp")):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert "dir" in given or given.get("prefix", "").startswith("scratch_prefix("), ast.unparse(node)


def test_every_module_has_a_layer():
    assert {part_of(path) for path in MODULES} <= set(RANKS)


def test_the_loop_is_short():
    assert len((PACKAGE / "loop.py").read_text("utf-8").splitlines()) < 150


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_and_functions_are_small(path):
    text = path.read_text("utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{path.name}:{node.lineno} {node.name}"
