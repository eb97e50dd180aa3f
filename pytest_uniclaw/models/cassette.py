"""Cassettes: what one role of one attempt asked its model and got, in a file that a replay answers from.

A lane file is JSON, one value a line: first the head ``{"format", "lane", "metadata", "variables"}``, then
``{"message": ref, "value"}`` and ``{"tools": ref, "value"}`` (each once, however often the conversation repeats it)
and ``{"entry": n, "began", "ended", "messages": [ref, …], "tools": ref, "params", "chunks" | "body", "error",
"complete"}``. Entries are in the order in which their calls began, times are seconds since the first. Chunks are as the
provider cut them.

Pictures and long texts are files in the folder beside it, named by their hash; ``{"$blob": hash}`` stands for a text
and ``{"$blob": hash, "type": "image/png"}`` for a data URL (``{"$blob": null, "json"}`` for an object that has such a
key of its own). A lane is named by what was run, never by who ran it:
``<backend>/<model slug>/<task id>/a<k>/<role>[-tag]``, the model being the executor's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_uniclaw.errors import SettingsError, UniclawError
from pytest_uniclaw.models.chat import Json, assemble
from pytest_uniclaw.models.exchange import read_blob, read_rows, rewritten
from pytest_uniclaw.models.ledger import json_line
from pytest_uniclaw.models.normalise import without_keys

FORMAT = 1
LARGE = 64 * 1024
"""Characters of the longest text that stands in the lane file itself."""
_REF = 12
"""Characters of a hash by which entries refer to messages."""
_REFUSED_HERE = frozenset({"budget", "session_budget", "replay_miss"})
"""Classes of calls that no provider was asked for."""
_DATA_URL = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,80});base64,([A-Za-z0-9+/=]*)")


@dataclass(frozen=True)
class Entry:
    """One recorded call: the chat request, and its answer as chunks or body, an error, or chunks and then an error.

    ``began`` and ``ended`` are seconds since the lane's first call. A call that its client left is not ``complete`` and
    has no error; a stream may be complete without a finish reason. ``error`` is ``{"class", "status", "error": {…}}``.
    """

    n: int
    began: float
    ended: float
    request: Json
    chunks: tuple[Json, ...] = ()
    body: Json | None = None
    error: Json | None = None
    complete: bool = False


@dataclass(frozen=True)
class Cassette:
    """A loaded lane. ``variables`` are the recorded run's names for things, ``metadata`` says what was recorded."""

    lane: str
    metadata: Mapping[str, Any]
    variables: Mapping[str, str]
    entries: tuple[Entry, ...]


def lane_name(backend: str, model: str, task: str, number: int, role: str, tag: str = "") -> str:
    """Return a lane's name.

    ``backend`` is the agent, ``model`` the slug of its model, ``number`` the attempt's, ``tag`` a judge's of a panel.
    """
    parts = [backend, model, task, f"a{number}", f"{role}-{tag}" if tag else role]
    return "/".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip(".") or "-" for part in parts)


def lane_file(directory: Path, lane: str) -> Path:
    """Return the file of a lane in a folder of cassettes."""
    return directory / f"{lane}.jsonl"


def make_cassette(
    log: Path, file: Path, *, lane: str, metadata: Mapping[str, Any], variables: Mapping[str, str] | None = None
) -> int:
    """Write the lane file of an exchange log and return the number of its entries.

    The log has known secrets blanked already; keys of well-known services are blanked here. Nothing is written for a
    log without exchanges. Raises UniclawError when the log has lost a message or the file cannot be written.
    """
    rows = sorted((row for row in read_rows(log) if _asked(row)), key=lambda row: (_seconds(row["started"]), row["n"]))
    if not rows:
        return 0
    writer = _Writer(log, file)
    head = {"format": FORMAT, "lane": lane, "metadata": dict(metadata), "variables": dict(variables or {})}
    first = _seconds(rows[0]["started"])
    lines = [head]
    for n, row in enumerate(rows, 1):
        lines += writer.entry(n, row, _seconds(row["started"]) - first)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        writer.write_blobs()
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(b"".join(map(json_line, lines)))
        temporary.replace(file)
        writer.remove_former_blobs()
    except OSError as error:
        raise UniclawError(f"{file}: the cassette cannot be written: {error}") from error
    return len(rows)


def load_cassette(file: Path) -> Cassette:
    """Read a lane file. Raises SettingsError, which says what to do, when it is missing or damaged."""
    if not file.is_file():
        fix = "record it with --uniclaw-cassette-record"
        raise SettingsError(f"{file}: there is no such cassette\n  fix: {fix}")
    try:
        head, *rest = (json.loads(line) for line in file.read_bytes().splitlines())
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {head['format']}, this version reads {FORMAT}")
        lines = [_unmoved(line, blobs_of(file)) for line in rest]
        told = {line.get("message") or line.get("tools"): line["value"] for line in lines if "value" in line}
        entries = tuple(_entry(line, told) for line in lines if "entry" in line)
        lane, metadata, variables = (head[name] for name in ("lane", "metadata", "variables"))
        _require(isinstance(lane, str), "lane is no text")
        _require(isinstance(metadata, dict), "metadata is no object")
        _require(
            isinstance(variables, dict) and all(isinstance(v, str) for v in variables.values()),
            "variables are no texts",
        )
        return Cassette(lane, metadata, variables, entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise SettingsError(f"{file}: this is no sound cassette ({problem})\n  fix: record it anew") from None


def stale(file: Path, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a lane's metadata is not as given, one line each: such a cassette should be recorded anew.

    Raises SettingsError like :func:`load_cassette`.
    """
    recorded = load_cassette(file).metadata
    names = [*recorded, *(name for name in metadata if name not in recorded)]
    pairs = ((name, recorded.get(name), metadata.get(name)) for name in names)
    return tuple(f"{name}: recorded {old!r}, now {new!r}" for name, old, new in pairs if old != new)


def blobs_of(file: Path) -> Path:
    """Return the folder of a lane's pictures and long texts."""
    return file.with_suffix(".blobs")


class _Writer:
    """The lines of a lane, with each message once."""

    def __init__(self, log: Path, file: Path) -> None:
        self._log = log
        self._folder = blobs_of(file)
        self._refs: dict[str, str] = {}
        self._known: set[str] = set()
        self._blobs: dict[str, bytes] = {}

    def entry(self, n: int, row: Json, began: float) -> Iterator[Json]:
        """The lines of one call."""
        messages = []
        for digest in row["messages"]:
            yield from self._once("message", digest)
            messages.append(self._refs[digest])
        if row.get("tools"):
            yield from self._once("tools", row["tools"])
        answer: Json = {}
        if row.get("chunks"):
            answer["chunks"] = rewritten(row["chunks"], _without_keys)
            answer["complete"] = row["class"] == "ok"
        if row.get("body") is not None:
            answer["body"] = row["body"]
        if row.get("error") is not None:
            answer["error"] = {"class": row["class"], "status": row["status"]} | row["error"]
        times = {"began": round(began, 3), "ended": round(began + row["ms"] / 1000, 3)}
        request = {"messages": messages, "tools": self._refs.get(row.get("tools") or ""), "params": row["params"]}
        yield {"entry": n} | times | self._kept(request | answer)

    def write_blobs(self) -> None:
        """Write the pictures and long texts. Raises OSError."""
        if self._blobs:
            self._folder.mkdir(parents=True, exist_ok=True)
        for digest, data in self._blobs.items():
            (self._folder / digest).write_bytes(data)

    def remove_former_blobs(self) -> None:
        """Remove those of a former recording. Raises OSError."""
        for old in self._folder.glob("*"):
            if old.name not in self._blobs:
                old.unlink()

    def _once(self, kind: str, digest: str) -> Iterator[Json]:
        """The line of a message or tool list the first time."""
        if digest in self._refs:
            return
        value = read_blob(self._log, digest)
        if value is None:
            raise UniclawError(f"{self._log}: the exchange log has lost a message, no cassette can be made of it")
        value = self._kept(value)
        ref = self._refs[digest] = hashlib.sha256(json_line(value)).hexdigest()[:_REF]
        if ref not in self._known:
            self._known.add(ref)
            yield {kind: ref, "value": value}

    def _kept(self, value: Any) -> Any:
        return walked(_escaped(_without_keys(value)), self._moved)

    def _moved(self, text: str) -> Any:
        """A text, or the reference to the blob it became."""
        found = _DATA_URL.fullmatch(text)
        if found:
            try:
                data = base64.b64decode(found[2], validate=True)
            except binascii.Error:
                data = b""
            if f"data:{found[1]};base64,{base64.b64encode(data).decode()}" == text:
                return {"$blob": self._blob(data), "type": found[1]}
        if len(text) > LARGE:
            return {"$blob": self._blob(text.encode("utf-8", "surrogatepass"))}
        return text

    def _blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        return digest


def _require(sound: bool, problem: str) -> None:
    """Raise ValueError unless what was read is sound."""
    if not sound:
        raise ValueError(problem)


def _entry(line: Json, told: Mapping[str, Any]) -> Entry:
    messages = [told[ref] for ref in line["messages"]]
    request = {"messages": messages} | line["params"]
    if line["tools"] is not None:
        request["tools"] = told[line["tools"]]
    chunks = tuple(line.get("chunks") or ())
    _require(type(line["entry"]) is int, "an entry's number is none")
    _require(all(type(line[name]) in (int, float) for name in ("began", "ended")), "a time is no number")
    _require(all(isinstance(value, dict) for value in (*messages, *chunks)), "a message or chunk is no object")
    body, error = line.get("body"), line.get("error")
    _require(all(value is None or isinstance(value, dict) for value in (body, error)), "an answer is no object")
    told_complete = line.get("complete", False)
    _require(isinstance(told_complete, bool), "complete is neither true nor false")
    # Recordings that do not say so are complete by their finish reason.
    complete = told_complete or body is not None or assemble(list(chunks)).finish_reason is not None
    return Entry(line["entry"], line["began"], line["ended"], request, chunks, body, error, complete)


def _escaped(value: Any) -> Any:
    """A JSON value whose own objects cannot be taken for references to blobs."""
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        if "$blob" in value:
            return {"$blob": None, "json": json.dumps(value)}
        return {key: _escaped(item) for key, item in value.items()}
    return value


def _unmoved(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_unmoved(item, folder) for item in value]
    if isinstance(value, dict):
        if "$blob" in value:
            is_reference = value["$blob"] is not None
            return _blob_text(value, folder) if is_reference else json.loads(_unmoved(value["json"], folder))
        return {key: _unmoved(item, folder) for key, item in value.items()}
    return value


def _blob_text(ref: Json, folder: Path) -> str:
    digest = str(ref["$blob"])
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"{digest!r} is no hash")
    data = (folder / digest).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{folder / digest} is not what was recorded")
    if "type" in ref:
        return f"data:{ref['type']};base64,{base64.b64encode(data).decode()}"
    text: str = data.decode("utf-8", "surrogatepass")
    return text


def _asked(row: Json) -> bool:
    """Whether a row is a call that a provider was asked for."""
    return bool(row.get("messages")) and row["class"] not in _REFUSED_HERE


def _without_keys(value: Any) -> Any:
    return walked(value, without_keys)


def walked(value: Any, change: Callable[[str], Any]) -> Any:
    """A JSON value with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [walked(item, change) for item in value]
    if isinstance(value, dict):
        return {key: walked(item, change) for key, item in value.items()}
    return value


def _seconds(started: str) -> float:
    return datetime.fromisoformat(started).timestamp()
