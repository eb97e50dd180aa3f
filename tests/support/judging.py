"""Stand-ins for a judge's model and workspace, and a small case to judge, all in memory or in one folder."""

from __future__ import annotations

import base64
import copy
import html
import json
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_uniclaw.judge.base import Case, Evidence
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.chat_client import Reply
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.sandbox.base import GradingJob, GradingOutput, Owner, Sandbox, SandboxSpec, Workspace, WorkspaceJob
from pytest_uniclaw.task import load_task
from pytest_uniclaw.verdict import Verdict

Json = dict[str, Any]
CHOICE = ModelChoice("acme", "judge-1")
RULES = """# T

## 4. Ground truth

The total is 412.50 EUR.

## 5. Checkpoints

- **0.50 — C1 Report.** report.md gives the total.
- **0.30 — C2 Rows.** rows.csv has a row for each invoice.
- **0.20 — C3 No originals changed.** Nothing under sources is changed.

## 6. Score caps

- **invented** — cap at 0.40 if a row is invented.
"""
FORMULA = """# T

## 5. Rubric

`final_score = revealed / 256`

## 6. Score caps

- **cheated** — cap at 0.10 if the board file was edited.
"""
RECORDS = [
    ("user", [{"type": "text", "text": "Write report.md with the total."}]),
    ("assistant", [{"type": "toolCall", "name": "exec", "arguments": {"command": "sum rows.csv"}}]),
    ("toolResult", [{"type": "text", "text": "sum: 412.50"}]),
    ("assistant", [{"type": "text", "text": "I wrote the report and checked every single row."}]),
]


def transcript(messages: Sequence[tuple[str, list[Json]]]) -> str:
    lines = [
        {"type": "message", "id": str(n), "message": {"role": r, "content": c}} for n, (r, c) in enumerate(messages)
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


@dataclass
class FakeWorkspace:
    """Reads the host folders of a job; ``broken`` tools answer with an error."""

    folders: Mapping[str, Path]
    calls: list[tuple[str, Json]] = field(default_factory=list)
    broken: frozenset[str] = frozenset()

    def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float = 60.0) -> Mapping[str, Any]:
        self.calls.append((tool, dict(arguments)))
        if tool in self.broken:
            return {"text": "", "images": [], "next_offset": None, "error": f"{tool} died"}
        try:
            return {"text": "", "images": [], "next_offset": None, "error": None} | getattr(self, tool)(**arguments)
        except (OSError, ValueError) as error:
            return {"text": "", "images": [], "next_offset": None, "error": str(error)}

    def list_files(self, path: str = ".", depth: int = 3) -> Json:
        names = [
            f"{n}/{p.relative_to(f)}" for n, f in self.folders.items() for p in sorted(f.rglob("*")) if p.is_file()
        ]
        return {"text": "\n".join(names)}

    def read_file(self, path: str, offset: int = 0, limit: int = 16384) -> Json:
        text = text_in(self.host(path))
        return {
            "text": text[offset : offset + limit],
            "next_offset": offset + limit if len(text) > offset + limit else None,
        }

    def view_image(self, path: str, page: int = 1, box: Any = None) -> Json:
        data = self.host(path).read_bytes()
        if not data.startswith((b"\x89PNG", b"\xff\xd8")):
            raise ValueError(f"{path} is no image")
        return {"images": [{"mime": "image/png", "data": base64.b64encode(data).decode()}]}

    def find_quotes(self, quotes: list[Json]) -> Json:
        return {"found": [self._found(quote["path"], quote["text"]) for quote in quotes]}

    def host(self, path: str) -> Path:
        name, _, rest = path.partition("/")
        if name not in self.folders or not (self.folders[name] / rest).is_file():
            raise OSError(f"{path}: there is no such file")
        return self.folders[name] / rest

    def _found(self, path: str, text: str) -> bool:
        try:
            content = text_in(self.host(path))
        except (OSError, ValueError):
            return False
        readings = [content, re.sub(r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), content).replace('\\"', '"')]
        return any(folded(text) in folded(reading) for reading in readings)


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def text_in(path: Path) -> str:
    """The text of a file as the tools give it: of a Word file its paragraphs, of an image nothing."""
    data = path.read_bytes()
    if data.startswith(b"PK"):
        with zipfile.ZipFile(path) as archive:
            xml = archive.read("word/document.xml").decode("utf-8")
        return html.unescape("\n".join("".join(re.findall(r"<w:t[^>]*>([^<]*)", part)) for part in xml.split("</w:p>")))
    if b"\0" in data[:8192]:
        raise ValueError("it is binary")
    return data.decode("utf-8", "replace")


@dataclass
class FakeProvider:
    """Opens fake workspaces; ``losses`` are raised by the first of them, ``grade`` answers for the checks."""

    losses: list[Exception] = field(default_factory=list)
    opened: list[FakeWorkspace] = field(default_factory=list)
    grading: Callable[[GradingJob], GradingOutput] | None = None
    broken: frozenset[str] = frozenset()
    name: str = "fake"
    trusted_only: bool = False

    @contextmanager
    def open_workspace(self, job: WorkspaceJob) -> Iterator[Workspace]:
        if self.losses:
            raise self.losses.pop(0)
        workspace = FakeWorkspace(dict(job.folders), broken=self.broken)
        self.opened.append(workspace)
        yield workspace

    def grade(self, job: GradingJob) -> GradingOutput:
        assert self.grading is not None, "no checks are expected to run"
        return self.grading(job)

    def open(self, spec: SandboxSpec) -> AbstractContextManager[Sandbox]:
        raise NotImplementedError

    def check(self, images: Sequence[str]) -> None:
        raise NotImplementedError

    def digest(self, image: str) -> str:
        raise NotImplementedError


Step = Json | Exception | Callable[["FakeChat"], Json]


@dataclass
class FakeChat:
    """Answers with its steps in order, the last one again and again; keeps what it was asked."""

    steps: Sequence[Step]
    asked: list[list[Json]] = field(default_factory=list)
    tools: list[list[str]] = field(default_factory=list)
    tokens: int | None = 10

    def complete(self, messages: Sequence[Json], *, tools: Sequence[Json] = (), seconds: float) -> Reply:
        assert seconds > 0
        step = self.steps[min(len(self.asked), len(self.steps) - 1)]
        self.asked.append(copy.deepcopy(list(messages)))
        self.tools.append([tool["function"]["name"] for tool in tools])
        if isinstance(step, Exception):
            raise step
        message = step(self) if callable(step) else step
        return Reply(message, message.pop("finish", None) or "stop", self.tokens, self.tokens)

    @property
    def system(self) -> str:
        return str(self.asked[0][0]["content"])

    @property
    def first(self) -> str:
        return str(self.asked[0][1]["content"])

    @property
    def nonce(self) -> str:
        found = re.search(r"must be `(\w+)`", self.system)
        return found[1] if found else ""

    @property
    def last(self) -> str:
        """What the model was told last."""
        content = self.asked[-1][-1]["content"]
        return content if isinstance(content, str) else str(content[0]["text"])


@dataclass
class FakeRoles:
    """Opens one chat per question, in order."""

    chats: list[FakeChat]
    opened: list[tuple[str, ModelChoice, int, str, str]] = field(default_factory=list)

    @contextmanager
    def open(self, role: Any, choice: ModelChoice, *, turn: int, effort: str = "", tag: str = "") -> Iterator[FakeChat]:
        self.opened.append((role, choice, turn, effort, tag))
        yield self.chats[min(len(self.opened), len(self.chats)) - 1]


def say(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text} | more


def use(name: str, arguments: Json | str, ident: str = "call_1") -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


def calls(*uses: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(uses)}


def submit(payload: Json | str) -> Json:
    return calls(use("submit_assessment", payload))


def quote(path: str, text: str) -> Json:
    return {"path": path, "quote": text}


REPORT = quote("evidence/results/report.md", "The total is 412.50 EUR")


def submission(**changes: Any) -> Json:
    """A sound submission for RULES: C1 met, C2 half, C3 met by search, no cap; 0.85 in all."""
    return {
        "checkpoints": [
            {"id": "C1", "state": "met", "fraction": 1.0, "evidence": [REPORT], "reason": "the total is there"},
            {"id": "C2", "state": "partial", "fraction": 0.5, "reason": "half of them",
             "evidence": [quote("evidence/results/rows.csv", "a,1")]},
            {"id": "C3", "state": "met", "searched": ["evidence/results"], "reason": "nothing is changed"},
        ],
        "caps": [{"id": "invented", "triggered": False, "reason": "every row has an invoice"}],
        "recovery": {"recoverable": True, "reason": "rows can be added"},
        "decision": {
            "verdict": "continue", "attempt_state": "incomplete", "recoverable": True, "score": 0.8, "confidence": 0.7,
            "rationale": "half of the rows are missing", "missing_artifacts": ["rows"],
            "guidance_tags": ["incomplete_coverage"],
        },
    } | changes  # fmt: skip


def with_nonce(payload: Json) -> Callable[[FakeChat], Json]:
    return lambda chat: submit(payload | {"nonce": chat.nonce})


def with_line(identity: str, **line: Any) -> Json:
    """The sound submission with another answer for one checkpoint or cap."""
    payload = submission()
    for field_name in ("checkpoints", "caps"):
        payload[field_name] = [{"id": identity} | line if x["id"] == identity else x for x in payload[field_name]]
    return payload


def make_case(
    folder: Path, *chats: FakeChat, rules: str = RULES, results: Mapping[str, str | bytes] | None = None,
    records: Sequence[tuple[str, list[Json]]] = tuple(RECORDS), provider: Any = None, checks: str = "",
    turn: int = 1, earlier: tuple[Verdict, ...] = (), **more: Any,
) -> Case:  # fmt: skip
    """A case of a small task; ``results`` are the deliverables, a report and a table without it."""
    package = folder / "injection" / "101_skill_usage" / "task_a"
    yaml = folder / "suites" / "101_skill_usage" / "task_a.yaml"
    if not yaml.exists():
        yaml.parent.mkdir(parents=True)
        yaml.write_text(
            "task_id: task_a\ncategory: 101_skill_usage\ntask: Write report.md with the total.\n"
            "references: [references/eval_rule.md]\nsources: [invoices.txt]\nsuccess_threshold: 0.9\n"
        )
        (package / "references" / "checks").mkdir(parents=True)
        (package / "sources").mkdir()
        (package / "sources" / "invoices.txt").write_text("a 1\nb 2\n")
        (package / "references" / "eval_rule.md").write_text(rules)
        if checks:
            (package / "references" / "checks" / "check_it.py").write_text(checks)
    write_evidence(folder, turn, results, records)
    task = load_task(yaml)
    evidence = Evidence(folder / "turns" / str(turn) / "evidence")
    roles = FakeRoles(list(chats)) if chats else None
    return Case(
        task, load_rubric(task, Reader.SUPERVISOR), evidence, turn, earlier, provider or FakeProvider(),
        Owner("run", "gw0", "attempt"), followups_left=2, roles=roles, **more,
    )  # fmt: skip


def write_evidence(
    folder: Path, turn: int, results: Mapping[str, str | bytes] | None, records: Sequence[tuple[str, list[Json]]]
) -> None:
    given = (
        {"report.md": "# Report\nThe total is 412.50 EUR.\n", "rows.csv": "id,amount\na,1\n"}
        if results is None
        else results
    )
    evidence = folder / "turns" / str(turn) / "evidence"
    for name in ("results", "state"):
        (evidence / name).mkdir(parents=True)
    files = []
    for name, content in given.items():
        data = content if isinstance(content, bytes) else content.encode()
        path = evidence / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files.append({"path": name, "size": len(data), "sha256": str(hash(data))})
    (evidence / "manifest.json").write_text(json.dumps({"files": files}, ensure_ascii=False))
    (evidence / "transcript.jsonl").write_text(transcript(records), "utf-8")
