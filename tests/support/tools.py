"""Calls the roles' tools as the workspaces do: one process, one order, one answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "pytest_uniclaw" / "judge" / "harness" / "tools.py"


def ask(root: Path, tool: str, *, time_limit: float = 30.0, memory: int = 0, **arguments: Any) -> dict[str, Any]:
    """Return a tool's answer."""
    order = {"tool": tool, "arguments": arguments, "root": str(root), "seconds": time_limit, "memory": memory}
    return send(json.dumps(order).encode() + b"\n")


def send(order: bytes) -> dict[str, Any]:
    """Return the answer to an order as it stands."""
    done = subprocess.run([sys.executable, "-I", str(TOOLS)], input=order, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    answer = json.loads(done.stdout)
    assert {"text", "images", "next_offset", "error"} <= set(answer)
    return answer


def text_of(root: Path, tool: str, **arguments: Any) -> str:
    """Return the text of an answer that is no error."""
    answer = ask(root, tool, **arguments)
    assert answer["error"] is None
    return str(answer["text"])


def error_of(root: Path, tool: str, **arguments: Any) -> str:
    """Return the error of an answer, which then holds nothing else."""
    answer = ask(root, tool, **arguments)
    assert answer["error"]
    assert (answer["text"], answer["images"], answer["next_offset"]) == ("", [], None)
    return str(answer["error"])
