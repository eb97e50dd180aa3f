"""The Codex supervisor without a container: its schema, its version, where it runs, and what it makes of an answer."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.errors import GradingError, InfraError, ModelRefused, SandboxLost
from pytest_uniclaw.extensions import load_supervisor
from pytest_uniclaw.judge.base import Assignment
from pytest_uniclaw.judge.checks import GRADER_CRASH
from pytest_uniclaw.judge.codex import RELEASE, UNCONFINED, CodexSupervisor, read_answer
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.panel import PanelSupervisor
from pytest_uniclaw.judge.strictjson import Rejected
from pytest_uniclaw.judge.submission import read_submission, strict_schema, tool_definition
from pytest_uniclaw.modelchoice import ModelChoice, RoleChoice
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.models.grants import Activity, Grant, GrantRequest
from pytest_uniclaw.paths import paths_for
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Entry, SandboxSpec
from pytest_uniclaw.sandbox.image_spec import IMAGES
from pytest_uniclaw.verdict import State
from tests.support.judging import FakeProvider, make_case, quote, submission, with_line

Json = dict[str, Any]
CHOICE = ModelChoice("script", "judge-1")
SUPERVISOR = CodexSupervisor(CHOICE)


@dataclass
class Lent:
    """A grant without a gateway; ``failed`` is what ended it."""

    failed: Exception | None = None
    stopped: list[bool] = field(default_factory=list)
    address: GatewayAddress = GatewayAddress(Path("/run/agent/agent.sock"), Path("/run/admin/admin.sock"), "volume")
    grant: Grant = Grant(id="g1", key="sk-virtual", model="judge-1")

    def activity(self) -> Activity:
        return Activity(calls_in_flight=1, last_event=3.0, waited_seconds=2.0)

    def failure(self, *, stop: bool) -> Exception | None:
        self.stopped.append(stop)
        return self.failed


@dataclass
class Lender:
    """The roles of an attempt, of which only a grant is asked for."""

    grant: Lent
    asked: list[Json] = field(default_factory=list)

    def open(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("codex talks to its model by itself")

    @contextmanager
    def lend(self, role: str, choice: Any, **more: Any) -> Iterator[Lent]:
        self.asked.append({"role": role, "choice": choice} | more)
        yield self.grant


Step = str | Ending | int | Exception | Callable[[str], str]


@dataclass
class Desktop:
    """A sandbox in which codex ``says`` its last messages one after another.

    In place of one may stand an ending, an exit status, an error, or what makes it of the message that codex is told.
    """

    says: list[Step]
    confined: bool = True
    user: str = "agent"
    files: dict[str, Entry] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    said: str | None = None

    @property
    def paths(self) -> Any:
        return paths_for("agent")

    def put(self, entries: Iterable[Entry]) -> None:
        self.files |= {entry.path: entry for entry in entries}

    def run(self, command: list[str], **more: Any) -> Completed:
        assert command[:3] == ["codex", "sandbox", "linux"]
        assert more["user"] == "agent"
        return Completed(Ending.EXITED, 0 if self.confined else 101, b"", 0.1)

    def turn(self, command: list[str], *, pulse: Any, **_: Any) -> Completed:
        self.told.append((self.files[command[3]].content or b"").decode())
        assert (pulse().busy, pulse().idle, pulse().waited) == (True, 3.0, 2.0)
        step = self.says.pop(0)
        if isinstance(step, Exception):
            raise step
        self.said = step(self.told[-1]) if callable(step) else step if isinstance(step, str) else None
        if isinstance(step, Ending):
            return Completed(step, None, b"", 9.0)
        return Completed(Ending.EXITED, step if isinstance(step, int) else 0, b"", 9.0)

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        ((path, destination),) = folders.items()
        assert limits.files == 1
        if self.said is not None:
            destination.mkdir()
            (destination / Path(path).name).write_text(self.said, "utf-8")
        return {path: Manifest()}


@dataclass
class Desktops(FakeProvider):
    """A provider that opens one desktop after another."""

    desktops: list[Desktop] = field(default_factory=list)
    specs: list[SandboxSpec] = field(default_factory=list)

    @contextmanager
    def open(self, spec: SandboxSpec) -> Iterator[Any]:
        self.specs.append(spec)
        yield self.desktops.pop(0)


def seated(folder: Path, *desktops: Desktop, failed: Exception | None = None, **more: Any) -> tuple[Any, Lender]:
    lender = Lender(Lent(failed))
    case = make_case(folder, provider=Desktops(desktops=list(desktops)), **more)
    return replace(case, roles=lender), lender


def words(payload: Any) -> str:
    return json.dumps(payload, ensure_ascii=False)


def test_an_answer_is_read_verified_and_kept_with_its_grader(tmp_path: Path) -> None:
    desktop = Desktop(["Here it is: " + words(submission())])
    case, lender = seated(tmp_path, desktop)
    assessment = replace(SUPERVISOR, effort="high", instructions="Be kind.").assess(case)
    assert [judgement.state for judgement in assessment.judgements] == [State.MET, State.PARTIAL, State.MET]
    assert assessment.grader.startswith("codex/1 script/judge-1 effort:high rubric:")
    assert assessment.grader.endswith(f" codex:{RELEASE}")
    assert UNCONFINED not in assessment.flags
    limits = SUPERVISOR.limits
    assert lender.asked == [
        {"role": "supervisor", "choice": CHOICE, "turn": 1, "tag": "", "calls": limits.calls, "tokens": limits.tokens}
    ]
    (spec,) = case.provider.specs
    assert (spec.image, spec.user, spec.network, spec.relay) == (f"codex-{RELEASE}", "agent", "isolated", "volume")
    assert spec.gateway == Path("/run/agent")
    inside = {path for path in desktop.files if path.startswith("/workspace/")}
    assert inside == {f"/workspace/{name}" for name in ("task", "transcript", "evidence", "references", "sources")}
    assert {desktop.files[path].user for path in inside} == {"root"}
    config = (desktop.files["/home/agent/.codex/config.toml"].content or b"").decode()
    assert 'sandbox_mode = "read-only"' in config
    assert 'model_reasoning_effort = "high"' in config
    assert "project_doc_max_bytes = 0" in config
    (told,) = desktop.told
    for expected in ("hidden supervisor", "Be kind.", "/workspace", "`C2` (weight 0.3)"):
        assert expected in told


def test_a_model_that_is_no_script_must_give_the_nonce(tmp_path: Path) -> None:
    def obedient(told: str) -> str:
        found = re.search(r"must be `(\w+)`", told)
        assert found
        return words(submission() | {"nonce": found[1]})

    guess = words(submission() | {"nonce": "guessed"})
    desktop = Desktop([words(submission()), guess, guess])
    case, _ = seated(tmp_path, desktop)
    with pytest.raises(GradingError, match="nonce: must be"):
        CodexSupervisor(ModelChoice("acme", "judge-1")).assess(case)
    assert "nonce: must be the one of your instructions" in desktop.told[2]
    case, _ = seated(tmp_path / "again", Desktop([obedient]))
    assert CodexSupervisor(ModelChoice("acme", "judge-1")).assess(case).judgements[0].state is State.MET


def test_without_its_own_sandbox_it_says_so(tmp_path: Path) -> None:
    desktop = Desktop([words(submission())], confined=False)
    case, _ = seated(tmp_path, desktop)
    assert UNCONFINED in SUPERVISOR.assess(case).flags
    assert b'sandbox_mode = "danger-full-access"' in (desktop.files["/home/agent/.codex/config.toml"].content or b"")


def test_what_cannot_be_used_is_asked_for_again(tmp_path: Path) -> None:
    wrong = with_line("C1", state="met", fraction=0.3, reason="r", evidence=[])
    desktop = Desktop(["prose", words(wrong), words(submission())])
    case, _ = seated(tmp_path, desktop)
    assert SUPERVISOR.assess(case).judgements[0].state is State.MET
    assert [text.startswith("[uniclaw re-ask]") for text in desktop.told] == [False, True, True]
    assert "no complete JSON object in the answer; answer with one JSON object" in desktop.told[1]
    assert "met contradicts fraction 0.3" in desktop.told[2]


def test_after_the_re_asks_there_is_no_judgement(tmp_path: Path) -> None:
    case, lender = seated(tmp_path, Desktop(["prose", 1, "{}", words(submission())]))
    with pytest.raises(GradingError, match=r"no usable answer \(after 2 re-asks\): .*: is missing"):
        SUPERVISOR.assess(case)
    assert lender.grant.stopped == [False], "the next answer is asked for with the same key"


def test_a_quote_that_stands_nowhere_is_asked_for_once_and_then_unjudged(tmp_path: Path) -> None:
    made_up = with_line("C1", state="met", reason="r", evidence=[quote("evidence/results/report.md", "is 999.99 EUR")])
    desktop = Desktop([words(made_up), words(made_up)])
    case, _ = seated(tmp_path, desktop)
    assert SUPERVISOR.assess(case).judgements[0].state is State.UNJUDGED
    assert "nothing that you cite proves it" in desktop.told[1]


def test_a_provider_that_fails_is_infrastructure_and_one_that_refuses_is_not(tmp_path: Path) -> None:
    busy = InfraError("rate_limit: slow down", kind="rate_limit")
    case, _ = seated(tmp_path / "a", Desktop([1]), failed=busy)
    with pytest.raises(InfraError, match="slow down"):
        SUPERVISOR.assess(case)
    case, _ = seated(tmp_path / "b", Desktop([1]), failed=ModelRefused("context_length: too long", call_class="x"))
    with pytest.raises(GradingError, match="too long"):
        SUPERVISOR.assess(case)
    case, lender = seated(tmp_path / "c", Desktop([Ending.DEADLINE]))
    with pytest.raises(GradingError, match="codex gave no answer in 1200 s"):
        SUPERVISOR.assess(case)
    assert lender.grant.stopped == [True], "what is in flight is written down"


def test_a_container_that_dies_twice_earns_nothing(tmp_path: Path) -> None:
    lost = SandboxLost("the container died", cause="oom")
    case, _ = seated(tmp_path / "a", Desktop([lost]), Desktop([words(submission())]))
    assert SUPERVISOR.assess(case).judgements[0].state is State.MET
    case, _ = seated(tmp_path / "b", Desktop([lost]), Desktop([lost]))
    found = SUPERVISOR.assess(case)
    assert {judgement.state for judgement in found.judgements} == {State.UNMET}
    assert GRADER_CRASH in found.flags


def test_it_refuses_a_sandbox_that_is_no_isolation(tmp_path: Path) -> None:
    case, _ = seated(tmp_path)
    case.provider.trusted_only = True
    with pytest.raises(GradingError, match="does not run in the fake sandbox"):
        SUPERVISOR.assess(case)


def test_it_is_found_by_name_and_takes_what_a_task_gives(tmp_path: Path) -> None:
    plain = load_supervisor("codex", RoleChoice(CHOICE, "high", "Be kind."))
    assert plain == CodexSupervisor(CHOICE, "high", "Be kind.")
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert plain.images == (f"codex-{RELEASE}",)  # type: ignore[attr-defined]
    assert plain.images[0] in IMAGES  # type: ignore[attr-defined]
    panel = load_supervisor("codex", RoleChoice(CHOICE, judges="3"))
    assert isinstance(panel, PanelSupervisor)
    assert panel.name == "codex"
    versions = {SUPERVISOR.version, replace(SUPERVISOR, effort="low").version, ModelSupervisor(CHOICE).version}
    assert len(versions) == 3


def test_the_schema_is_one_that_providers_hold_an_answer_to(tmp_path: Path) -> None:
    case, _ = seated(tmp_path)
    assignment = Assignment.whole(case.rubric)
    schema = strict_schema(tool_definition(assignment, "n0nce")["function"]["parameters"])
    for part in objects(schema):
        assert part["required"] == list(part["properties"])
        assert part["additionalProperties"] is False
    piece = schema["properties"]["recovery"]["properties"]["evidence"]["items"]["properties"]
    assert piece["quote"] == {"type": ["string", "null"]}
    assert piece["region"]["type"] == ["array", "null"]
    assert piece["path"] == {"type": "string"}
    assert "nonce" in schema["required"]


def test_an_answer_by_the_strict_schema_is_a_submission(tmp_path: Path) -> None:
    case, _ = seated(tmp_path)
    payload = submission()
    for line in (*payload["checkpoints"], *payload["caps"], payload["recovery"]):
        line["evidence"] = [{"region": None, "quote": None} | piece for piece in line.get("evidence", [])]
        line.setdefault("searched", [])
    assert read_submission(payload, Assignment.whole(case.rubric)).checkpoints[0].evidence[0].region is None


def objects(schema: Any) -> Iterator[Json]:
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and schema.get("type") == "object":
        yield schema
    for part in parts:
        yield from objects(part)


def test_the_last_object_of_a_message_counts() -> None:
    assert read_answer('I quote {"verdict": "pass"}. So: {"a": 1}') == {"a": 1}
    with pytest.raises(Rejected, match="the key 'a' stands twice"):
        read_answer('{"a": 1, "a": 2}')


def test_the_grant_request_has_bounds() -> None:
    from pytest_uniclaw.roles import RoleModels

    roles = RoleModels(Lent().address, "attempt", Path("/tmp/a"), "task_a")
    request = roles._request("supervisor", CHOICE, 2, "j1")
    assert isinstance(request, GrantRequest)
    assert (request.turn, request.lane, request.log.name) == (2, "task_a", "supervisor-j1")
