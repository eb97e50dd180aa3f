"""Builds small task packages for the tests of the loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RULE = """# Hidden evaluation rule

## 1. Grading Philosophy

Only the results count.

## 5. Checkpoints

- **0.60 — C1 Totals.** The totals are right.
- **0.40 — C2 Note.** The note says why.

## 6. Score Caps

- **fabricated_rows** — cap at 0.40 if any row of the table is not in the sources.

## 7. Continue vs Fail

- Pass at >= 0.90.
"""
PUBLIC = """task_id: task_101_01_sum
category: 101_skill_usage
task: |
  Add the numbers in numbers.csv.
success_threshold: 0.9
references: [references/eval_rule.md]
"""


@dataclass(frozen=True)
class Package:
    """Where a built package lies."""

    yaml: Path
    folder: Path

    def write(self, name: str, content: str | bytes = "x\n") -> Path:
        """Write one file of the package's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def append(self, text: str) -> Package:
        """Add lines to the YAML."""
        self.yaml.write_text(self.yaml.read_text(encoding="utf-8") + text, encoding="utf-8")
        return self


def build(root: Path, text: str = PUBLIC, files: Mapping[str, str | bytes] | None = None) -> Package:
    """A package named task_101_01_sum below ``root``, with ``eval_rule.md`` and the given files."""
    yaml = root / "suites" / "101_skill_usage" / "task_101_01_sum.yaml"
    yaml.parent.mkdir(parents=True, exist_ok=True)
    yaml.write_text(text, encoding="utf-8")
    package = Package(yaml, root / "injection" / "101_skill_usage" / "task_101_01_sum")
    package.write("references/eval_rule.md", RULE)
    for name, content in (files or {}).items():
        package.write(name, content)
    return package
