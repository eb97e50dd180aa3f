"""What a judge submits: its schema for the model, and the strict reading of what came back.

Per checkpoint a state with evidence, per cap whether it is triggered, whether the attempt can be recovered, and the
judge's own decision as the paper has it. No total: sums, caps and verdict are computed by code (design invariant 2).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pytest_uniclaw.judge.base import Assignment
from pytest_uniclaw.judge.strictjson import Rejected
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.verdict import Opinion

TOOL = "submit_assessment"
State = Literal["met", "partial", "unmet", "cannot_determine"]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
PIECES = 30
"""Most pieces of evidence for one line."""
VALUE_SHOWN = 80
PROVING = "a verbatim quote, an image region, or the paths you searched"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Piece(_Part):
    """One piece of evidence: a file and either the words in it or a region of it.

    ``region`` is left, top, right, bottom of an image as shares of its width and height, 0 to 1.
    """

    path: str = Field(min_length=1)
    quote: str | None = Field(None, min_length=1)
    region: list[Share] | None = Field(None, min_length=4, max_length=4)

    @model_validator(mode="after")
    def _one_kind(self) -> Piece:
        if (self.quote is None) == (self.region is None):
            raise ValueError("give either quote or region")
        if self.region and not (self.region[0] < self.region[2] and self.region[1] < self.region[3]):
            raise ValueError("region must be [left, top, right, bottom] with left < right and top < bottom")
        return self


class Backed(_Part):
    """A claim with its evidence. ``searched`` are the paths in which something was looked for and not found."""

    reason: str = Field(min_length=1)
    evidence: list[Piece] = Field(default_factory=list, max_length=PIECES)
    searched: list[str] = Field(default_factory=list, max_length=PIECES)

    @property
    def backed(self) -> bool:
        """Whether anything is given to verify."""
        return bool(self.evidence or self.searched)


class CheckpointLine(Backed):
    """One checkpoint. ``fraction`` is the share of the weight earned; None where the state alone says it."""

    id: str
    state: State
    fraction: Share | None = None

    @model_validator(mode="after")
    def _consistent(self) -> CheckpointLine:
        given, whole = self.fraction, {"met": 1.0, "unmet": 0.0}.get(self.state)
        if whole is not None and given not in (None, whole):
            raise ValueError(f"{self.state} contradicts fraction {given:g}; {self.state} means {whole:g}")
        if self.state == "partial" and not (given is not None and 0.0 < given < 1.0):
            raise ValueError("partial needs a fraction above 0 and below 1")
        if self.state in ("met", "partial") and not self.backed:
            raise ValueError(f"{self.state} needs evidence: {PROVING}")
        return self

    @property
    def earned(self) -> float:
        """The share of the weight, 0 where it could not be determined."""
        return {"met": 1.0, "partial": self.fraction or 0.0}.get(self.state, 0.0)


class CapLine(Backed):
    """One cap; ``triggered`` None is: could not be determined."""

    id: str
    triggered: bool | None

    @model_validator(mode="after")
    def _consistent(self) -> CapLine:
        if self.triggered and not self.backed:
            raise ValueError(f"a triggered cap needs evidence: {PROVING}")
        return self


class Recovery(Backed):
    """Whether further user messages could still bring what was asked for."""

    recoverable: bool

    @model_validator(mode="after")
    def _consistent(self) -> Recovery:
        if not self.recoverable and not self.backed:
            raise ValueError(f"recoverable false needs evidence: {PROVING}")
        return self


class HolisticLine(Backed):
    """The score of a rubric that gives a formula and no weights; None is: could not be determined."""

    score: Share | None

    @model_validator(mode="after")
    def _consistent(self) -> HolisticLine:
        if self.score and not self.backed:
            raise ValueError(f"a score above 0 needs evidence: {PROVING}")
        return self


class DecisionPart(_Part):
    """The judge's own decision; stored, used for no number."""

    verdict: Literal["pass", "fail", "continue"]
    attempt_state: Literal[
        "in_progress", "incomplete", "complete_but_failed", "complete_and_passed", "terminal_failure"
    ]
    recoverable: bool
    score: Share
    confidence: Share
    rationale: str = Field(min_length=1)
    missing_artifacts: list[str] = Field(default_factory=list, max_length=PIECES)
    guidance_tags: list[str] = Field(default_factory=list, max_length=PIECES)

    @model_validator(mode="after")
    def _consistent(self) -> DecisionPart:
        said = {
            "verdict pass needs attempt_state complete_and_passed":
                self.verdict == "pass" and self.attempt_state != "complete_and_passed",
            "attempt_state complete_and_passed needs verdict pass":
                self.verdict != "pass" and self.attempt_state == "complete_and_passed",
            "attempt_state terminal_failure needs verdict fail and recoverable false":
                self.attempt_state == "terminal_failure" and (self.verdict != "fail" or self.recoverable),
            "recoverable false contradicts attempt_state in_progress":
                not self.recoverable and self.attempt_state == "in_progress",
            "recoverable false contradicts verdict continue": not self.recoverable and self.verdict == "continue",
        }  # fmt: skip
        if wrong := [text for text, holds in said.items() if holds]:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def opinion(self) -> Opinion:
        """The decision as it is stored."""
        return Opinion(
            verdict=self.verdict, attempt_state=self.attempt_state, recoverable=self.recoverable, score=self.score,
            confidence=self.confidence, rationale=self.rationale, missing_artifacts=tuple(self.missing_artifacts),
            guidance_tags=tuple(self.guidance_tags),
        )  # fmt: skip


class Submission(_Part):
    """A whole submission. ``nonce`` is empty for scripted models, which cannot know one."""

    nonce: str = ""
    checkpoints: list[CheckpointLine] = Field(default_factory=list)
    caps: list[CapLine] = Field(default_factory=list)
    holistic: HolisticLine | None = None
    recovery: Recovery
    decision: DecisionPart


def read_submission(payload: Json, assignment: Assignment, nonce: str = "") -> Submission:
    """Read a submission strictly. Raises Rejected with every error found, in words for the model."""
    try:
        submission = Submission.model_validate(payload)
    except ValidationError as error:
        raise Rejected(*_errors(error)) from None
    problems = [*_nonce_problems(submission, payload, nonce), *_coverage_problems(submission, assignment)]
    if submission.recovery.recoverable != submission.decision.recoverable:
        problems.append("recovery.recoverable and decision.recoverable contradict each other")
    if problems:
        raise Rejected(*problems)
    return submission


def tool_definition(assignment: Assignment, nonce: str = "") -> Json:
    """Return the final tool, with the ids that are asked for."""
    properties: Json = {"nonce": {"type": "string"}} if nonce else {}
    if assignment.checkpoints:
        state = {"type": "string", "enum": list(get_args(State))}
        fraction = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
        properties["checkpoints"] = _list_of(assignment.checkpoints, {"state": state, "fraction": fraction}, ["state"])
    if assignment.caps:
        properties["caps"] = _list_of(assignment.caps, {"triggered": {"type": ["boolean", "null"]}}, ["triggered"])
    if assignment.holistic:
        score = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
        properties["holistic"] = _object({"score": score} | _BACKED, ["score", "reason"])
    properties["recovery"] = _object({"recoverable": {"type": "boolean"}} | _BACKED, ["recoverable", "reason"])
    properties["decision"] = _DECISION
    function = {
        "name": TOOL,
        "description": "Submit the whole assessment. It ends your work unless it is returned to you with errors.",
        "parameters": _object(properties, list(properties)),
    }
    return {"type": "function", "function": function}


def strict_schema(schema: Json) -> Json:
    """Return a schema of ours for providers that hold an answer to it: they want every property to be required.

    What may be missing may then be null, but for lists, which may be empty.
    """
    strict = {name: strict_schema(value) if isinstance(value, dict) else value for name, value in schema.items()}
    properties = strict.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict):
        return strict
    optional = set(properties) - set(schema["required"])
    for name in optional & set(_ALTERNATIVES):
        properties[name] = {**properties[name], "type": [properties[name]["type"], "null"]}
    return {**strict, "required": list(properties)}


def _errors(error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
        if item["type"] == "extra_forbidden":
            yield f"{place}: is not asked for; leave it out"
        elif item["type"] == "missing":
            yield f"{place}: is missing"
        else:
            value = "" if item["type"] == "value_error" else f"; it is {_shown(item['input'])}"
            yield f"{place or 'the submission'}: {item['msg'].removeprefix('Value error, ')}{value}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= VALUE_SHOWN else text[: VALUE_SHOWN - 1] + "…"
    return f"{text} (a string)" if isinstance(value, str) else text


def _nonce_problems(submission: Submission, payload: Json, nonce: str) -> Iterator[str]:
    if not nonce:
        return
    if submission.nonce != nonce:
        yield "nonce: must be the one of your instructions"
    if json.dumps(payload, ensure_ascii=False).count(nonce) > (submission.nonce == nonce):
        yield "the nonce stands in another field too; it belongs in nonce only"


def _coverage_problems(submission: Submission, assignment: Assignment) -> Iterator[str]:
    settled = assignment.settled
    yield from _ids("checkpoints", [c.id for c in submission.checkpoints], [c.id for c in assignment.checkpoints],
                    {j.checkpoint for j in settled.judgements})  # fmt: skip
    yield from _ids("caps", [c.id for c in submission.caps], [c.id for c in assignment.caps],
                    {j.cap for j in settled.caps})  # fmt: skip
    if assignment.holistic and submission.holistic is None:
        yield "holistic: is missing"
    if submission.holistic is not None and not assignment.holistic:
        yield "holistic: is not asked for; leave it out"


def _ids(field: str, given: Sequence[str], wanted: Sequence[str], settled: Iterable[str]) -> Iterator[str]:
    decided = set(settled)
    for name, count in Counter(given).items():
        if name in decided:
            yield f"{field}: {name[:VALUE_SHOWN]} is decided by a check; leave it out"
        elif name not in wanted:
            yield f"{field}: {name[:VALUE_SHOWN]!r} is not in the rubric; leave it out"
        elif count > 1:
            yield f"{field}: {name} is judged {count} times; judge it once"
    if missing := [name for name in wanted if name not in given]:
        yield f"{field}: missing {', '.join(missing)}"


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_PATHS: Json = {"type": "array", "items": {"type": "string"}}
_REGION: Json = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 4, "maxItems": 4}
_ALTERNATIVES = ("quote", "region")
_PIECE: Json = _object({"path": {"type": "string"}, "quote": {"type": "string"}, "region": _REGION}, ["path"])
_BACKED: Json = {
    "evidence": {"type": "array", "items": _PIECE, "maxItems": PIECES}, "searched": _PATHS,
    "reason": {"type": "string"},
}  # fmt: skip
_DECISION: Json = _object(
    {
        "verdict": {"type": "string", "enum": ["pass", "fail", "continue"]},
        "attempt_state": {
            "type": "string",
            "enum": ["in_progress", "incomplete", "complete_but_failed", "complete_and_passed", "terminal_failure"],
        },
        "recoverable": {"type": "boolean"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "rationale": {"type": "string"}, "missing_artifacts": _PATHS, "guidance_tags": _PATHS,
    },
    ["verdict", "attempt_state", "recoverable", "score", "confidence", "rationale", "missing_artifacts",
     "guidance_tags"],
)  # fmt: skip


def _list_of(lines: Sequence[Any], properties: Json, required: list[str]) -> Json:
    identity = {"id": {"type": "string", "enum": [line.id for line in lines]}}
    item = _object(identity | properties | _BACKED, ["id", *required, "reason"])
    return {"type": "array", "items": item, "minItems": len(lines), "maxItems": len(lines)}
