"""What a judge works on: a read-only workspace of request, conversation, evidence, references and sources.

``task/request.md`` is the request as the executor got it, ``transcript/conversation.md`` a readable form of
``evidence/transcript.jsonl``, ``evidence/`` the whole evidence of the turn, ``references/`` the whole hidden folder,
``sources/`` the task's sources, and ``ops/``, ``services/`` or ``skills/`` where the rubric cites them. Privacy values
are not in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.judge.base import Case
from pytest_uniclaw.judge.visible import indented
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.sandbox.base import MIB, Workspace, WorkspaceJob

EVIDENCE, TRANSCRIPT = "evidence", "transcript/conversation.md"
PACKAGE_BYTES = 128 * MIB
"""A folder of the package up to this size is given whole; of a larger one the files that the rubric names."""
TEXT_BYTES = MIB
"""How much of one file is looked through for text that addresses the judge."""
TOTAL_BYTES = 4 * MIB
DOCUMENTS, DOCUMENT_PAGES = 20, 2
"""How many office documents, and how many pages of each, are looked through."""
PAGE_CHARACTERS = 32_768
_DOCUMENT = frozenset({".docx", ".pptx", ".xlsx", ".pdf"})
_PRINTABLE = re.compile(rb"[\x20-\x7e\xc2-\xf4\x80-\xbf]{24,}")
_CITED = ("ops", "services", "skills")


@dataclass(frozen=True)
class Desk:
    """An open workspace; ``folders`` maps its top names to the host folders that were copied in."""

    workspace: Workspace
    folders: Mapping[str, Path]
    records: tuple[Record, ...]

    def exists(self, path: str) -> bool:
        """Whether a workspace path is there, links not followed; what cannot be a path is not."""
        name, _, rest = plain_path(path).partition("/")
        base = self.folders.get(name)
        try:
            return base is not None and _is_plain(base, rest)
        except (OSError, ValueError):
            return False


@contextmanager
def open_desk(case: Case) -> Iterator[Desk]:
    """Copy everything into a workspace and open it. Raises TaskError, EngineError and SandboxLost."""
    references = open_hidden(case.task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
    records = tuple(case.evidence.records())
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(case.owner.run)) as scratch:
        folders = {name: Path(scratch, name) for name in ("task", "transcript")}
        for folder in folders.values():
            folder.mkdir()
        (folders["task"] / "request.md").write_text(case.request + "\n", "utf-8", "replace")
        (folders["transcript"] / "conversation.md").write_text(conversation(records), "utf-8", "replace")
        folders |= {EVIDENCE: case.evidence.folder, "references": references} | _copy_package(case, Path(scratch))
        with case.provider.open_workspace(WorkspaceJob(case.owner, folders)) as workspace:
            yield Desk(workspace, folders, records)


def plain_path(path: str) -> str:
    """Return a workspace path without ``./`` and doubled slashes; a blank at its end belongs to the name."""
    return str(PurePosixPath(path.lstrip().rstrip("\r\n\t"))).removeprefix("/workspace/").removeprefix("/")


def conversation(records: Sequence[Record]) -> str:
    """Return the transcript as text: a heading for each message, then its blocks; only headings begin at the margin."""
    parts = []
    for number, message in enumerate(messages_of(records), 1):
        parts.append(f"## {number} {message.get('role')}\n")
        parts += [f"{indented(text)}\n" for _, text in blocks_of(message)]
    return "\n".join(parts)


def messages_of(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a transcript."""
    for record in records:
        message = record.get("message")
        if record.get("type") == "message" and isinstance(message, dict):
            yield message


def blocks_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of a message's blocks; the text of a tool call is its name and arguments."""
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        kind = str(block.get("type"))
        if kind == "toolCall":
            arguments = json.dumps(block.get("arguments"), ensure_ascii=False, indent=1)
            yield kind, f"[tool call] {block.get('name')} {arguments}"
        elif isinstance(block.get("text") or block.get("thinking"), str):
            yield kind, str(block.get("text") or block.get("thinking"))


def texts_of(desk: Desk) -> Iterator[tuple[str, str]]:
    """Yield (workspace path, text) of everything that the executor wrote, within bounds."""
    yield TRANSCRIPT, "\n\n".join(_spoken(desk.records))[:TOTAL_BYTES]
    left, documents = TOTAL_BYTES, 0
    evidence = desk.folders[EVIDENCE]
    for name in ("results", "state", "inline_images"):
        for path in _files(evidence / name):
            shown = f"{EVIDENCE}/{path.relative_to(evidence).as_posix()}"
            if path.suffix.lower() in _DOCUMENT and documents < DOCUMENTS:
                documents += 1
                yield shown, _document_text(desk.workspace, shown)
            elif left > 0:
                with path.open("rb") as file:
                    data = file.read(min(TEXT_BYTES, left))
                left -= len(data)
                yield shown, _text_in(data)


def task_text(case: Case) -> str:
    """Return what the task itself says: its request and the text of its sources, within bounds."""
    parts, left = [case.request], TEXT_BYTES
    for path in _files(case.task.folder / "sources"):
        if left <= 0:
            break
        with path.open("rb") as file:
            data = file.read(left)
        if b"\0" not in data:
            left -= len(data)
            parts.append(data.decode("utf-8", "replace"))
    return "\n".join(parts)


def _spoken(records: Sequence[Record]) -> Iterator[str]:
    """Yield what assistant and tools said."""
    for message in messages_of(records):
        if message.get("role") != "user":
            yield from (text for _, text in blocks_of(message))


def _document_text(workspace: Workspace, path: str) -> str:
    pages, offset = [], 0
    for _ in range(DOCUMENT_PAGES):
        answer = workspace.call("read_file", {"path": path, "offset": offset, "limit": PAGE_CHARACTERS})
        pages.append(str(answer.get("text") or ""))
        following = answer.get("next_offset")
        if not isinstance(following, int):
            break
        offset = following
    return "".join(pages)


def _text_in(data: bytes) -> str:
    """Return the text of a file's bytes; of binary data the readable runs, such as an image's comments."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" not in data:
        return data.decode("utf-8", "replace")
    return "\n\n".join(run.decode("utf-8", "ignore") for run in _PRINTABLE.findall(data[: TEXT_BYTES // 4]))


def _copy_package(case: Case, scratch: Path) -> dict[str, Path]:
    """Copy the sources, or of very large ones those that the rubric names, and the other folders that it cites."""
    rubric = "\n".join(section.text for section in case.rubric.sections)
    copied = {}
    for name in ("sources", *_CITED):
        folder = case.task.folder / name
        files = list(_files(folder)) if name == "sources" or f"{name}/" in rubric else []
        whole = sum(path.stat().st_size for path in files) <= PACKAGE_BYTES
        for path in files:
            if whole or path.name in rubric:
                target = scratch / name / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                copied[name] = scratch / name
    return copied


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, sorted, links not followed."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _is_plain(base: Path, rest: str) -> bool:
    path = base
    for part in PurePosixPath(rest).parts:
        path = path / part
        if part == ".." or path.is_symlink() or not path.exists():
            return False
    return True
