"""The roles' read-only tools as a process: ``python3 -I tools.py`` reads one order and prints one answer.

The order is one line of JSON on standard input: ``{"tool": name, "arguments": {…}, "root": folder, "seconds": N,
"memory": bytes}``, the last two optional. The answer is one JSON object on standard output: ``{"text": str, "images":
[{"mime", "data" (base64)}], "next_offset": int or null, "error": str or null}``; ``find_quotes`` adds ``"found"``.
The exit status is 0 whenever an answer was printed. See :mod:`.toolbox` for what the tools are.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(module: str) -> ModuleType:
    """Import a module of this folder as part of a package, without putting any folder on ``sys.path``."""
    folder = Path(__file__).absolute().parent
    name = "uniclaw_harness"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{name}.{module}")


if __name__ == "__main__":
    sys.exit(load("toolbox").main())
