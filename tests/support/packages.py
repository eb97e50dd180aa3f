"""Small task packages for sessions in real containers: a YAML, a rubric, checks, and an oracle or a scripted model."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

CATEGORY = "101_skill_usage"
RULE = """# Hidden evaluation rule

## 5. Checkpoints

- **1.00 — C1 Done.** done.txt says done.
"""
CHECK = """
import pytest

@pytest.mark.checkpoint("C1")
def check_done(evidence):
    assert evidence.text("done.txt").strip() == "done", "done.txt does not say done"
"""
DONE = "echo done > /tmp_workspace/results/done.txt\n"
"""What a solution does to pass :data:`CHECK`."""


@dataclass(frozen=True)
class Suite:
    """A folder with ``suites/`` and ``injection/`` of its own, and an ini file so that pytest looks no further up."""

    root: Path

    @classmethod
    def make(cls, root: Path, conftest: str = "") -> Suite:
        """Make an empty one; ``conftest`` is the source of a conftest.py beside the tasks."""
        (root / "suites" / CATEGORY).mkdir(parents=True)
        (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
        if conftest:
            (root / "suites" / "conftest.py").write_text(textwrap.dedent(conftest))
        return cls(root)

    def yaml(self, name: str) -> Path:
        """Return where a task's file lies."""
        return self.root / "suites" / CATEGORY / f"task_101_{name}.yaml"

    def folder(self, name: str) -> Path:
        """Return where a task's package lies."""
        return self.root / "injection" / CATEGORY / f"task_101_{name}"

    def add(
        self, name: str, solve: str = DONE, *, check: str = CHECK, script: object = None,
        uniclaw: Mapping[str, object] | None = None, files: Mapping[str, str | bytes] | None = None, **fields: object,
    ) -> Path:
        """Add the task ``task_101_<name>`` and return its file.

        ``solve`` is the body of its oracle, run with ``bash -eu``; ``script`` the turns of its scripted model;
        ``fields`` are further fields of the YAML. It has no follow-ups unless they say so.
        """
        data = {
            "task_id": f"task_101_{name}", "category": CATEGORY, "agent_sys": "oracle", "task": "Write done.txt.",
            "success_threshold": 0.9, "timeout_seconds": 60, "max_total_seconds": 60,
            "references": ["references/eval_rule.md"], "codex": {"max_user_followups": 0},
            "uniclaw": dict(uniclaw or {}), **fields,
        }  # fmt: skip
        self.yaml(name).write_text(yaml.safe_dump(data, sort_keys=False))
        contents: dict[str, str | bytes] = {
            "references/eval_rule.md": RULE, "references/checks/check_it.py": textwrap.dedent(check),
            "oracle/solve.sh": f"set -eu\n{textwrap.dedent(solve)}", **(files or {}),
        }  # fmt: skip
        if script is not None:
            contents["script/model.yaml"] = yaml.safe_dump({"turns": script})
        for path, content in contents.items():
            target = self.folder(name) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.yaml(name)
