"""Upstream's packages judged by a script: what each role says, written from a package's own rubric and a plan.

A plan says of each turn which share of each checkpoint the judge grants. The judge quotes what the scripted executor
left in ``results/answer.md``, so everything it says is verified like a model's words. Its own score is
:data:`OWN_SCORE`, whatever it grants, so that a total which came from the judge would show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.settings import environment_value
from pytest_uniclaw.task import Task, load_task

Json = dict[str, Any]
OWN_SCORE = 0.42
ANSWER = "evidence/results/answer.md"
PASSES = ("first draft", "second pass", "third pass")
"""A line of ``answer.md`` for each turn, which the judge quotes."""
LOOK = r"""
cd /tmp_workspace
for _ in $(seq 300); do
    compgen -G 'results/*_sessions' > /dev/null || break
    compgen -G 'results/*_service.log' > /dev/null && break
    sleep 0.1
done
{
    echo "first draft"
    echo "account $(id -u) in $HOME, snapshot mode ${SNAPSHOT_MODE:-unknown}"
    find clawbench/sources -type f -printf 'source %P\n'
    find -L "$HOME/skills" skills -iname SKILL.md -printf 'skill %p\n'
    find results clawbench/logs ! -type d ! -name answer.md -printf 'left by a service: %y %p\n'
    echo "games: $(pgrep -c -f '^python3 .*/(minesweeper|nonogram)[.]py')"
    find / -xdev \( -name eval_rule.md -o -path '*/references/*' -name ground_truth.json \) -printf 'hidden %p\n'
    echo "harness folder: $(ls -A /opt/uniclaw/services 2>/dev/null | tr '\n' ' ')"
} > results/answer.md 2>/dev/null
"""
FOLLOW_UPS = {
    "en": ("Please go over all of it once more.", "I am still not happy with it; look at each part again."),
    "zh": ("请把所有内容再检查一遍。", "我还是不太满意，请逐项再看一次。"),
}


@dataclass(frozen=True)
class Plan:
    """What the judge grants of a package, turn by turn.

    ``shares`` holds for each turn the shares of the checkpoints in the rubric's order; a short list goes on with its
    last share. ``holistic`` are the scores of a rubric without weights. ``cap`` is the id of a cap that is triggered.
    ``lost`` says that nothing can be recovered after the last turn.
    """

    shares: tuple[tuple[float, ...], ...] = ()
    holistic: tuple[float, ...] = ()
    cap: str = ""
    lost: bool = False

    @property
    def turns(self) -> int:
        """How many turns the judge speaks for."""
        return len(self.shares or self.holistic)


@dataclass(frozen=True)
class Package:
    """A package of upstream's, what the judge grants of it, and what must come of that.

    ``name`` is ``<category>/<task_id>``. ``weights`` and ``scores`` (one per turn) are taken from its ``eval_rule.md``
    by hand. ``opens`` are workspace paths that the judge looks at first, a folder with a slash at its end.
    """

    name: str
    plan: Plan
    status: str
    scores: tuple[float, ...]
    weights: tuple[float, ...] = ()
    opens: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.name.partition("/")[2]

    def load(self, checkout: Path) -> Task:
        """Load its task."""
        return load_task(checkout / "tasks" / f"{self.name}.yaml")


def checkout() -> Path:
    """Return the checkout; an address that names none is an error, not a reason to skip."""
    named = environment_value("UNICLAW_UPSTREAM")
    if not named:
        pytest.skip("NOT RUN: UNICLAW_UPSTREAM names no checkout of UniClawBench")
    path = Path(named).resolve()
    assert (path / "tasks").is_dir(), f"UNICLAW_UPSTREAM={named} has no folder tasks/"
    return path


def write_scripts(folder: Path, checkout: Path, packages: Iterable[Package]) -> dict[str, Path]:
    """Write the scripts of ``agent``, ``judge`` and ``user`` for packages; return their paths."""
    judge, user = {}, {}
    for package in packages:
        task = package.load(checkout)
        judge[task.task_id] = {"turns": list(judge_turns(package, load_rubric(task, Reader.SUPERVISOR)))}
        user[task.task_id] = {"turns": [user_turn(message) for message in FOLLOW_UPS[task.language]]}
    scripts: Mapping[str, Json] = {
        "agent": {"turns": list(agent_turns())}, "judge": {"lanes": judge}, "user": {"lanes": user},
    }  # fmt: skip
    for name, content in scripts.items():
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return {name: folder / f"{name}.yaml" for name in scripts}


def agent_turns() -> Iterator[list[Json]]:
    """Yield what the executor does: it writes down what it finds, then a line more each turn."""
    yield [{"shell": LOOK}, {"say": "I wrote results/answer.md."}]
    for line in PASSES[1:]:
        yield [{"shell": f"echo '{line}' >> /tmp_workspace/results/answer.md"}, {"say": "I went over it again."}]


def user_turn(message: str) -> list[Json]:
    """Return what the user does after a turn: look at the files, then write."""
    say = {"name": "say_to_agent", "arguments": {"mode": "instruction", "message": message}}
    return [call("read_file", path="results/answer.md"), {"call": say}]


def judge_turns(package: Package, rubric: Rubric) -> Iterator[list[Json]]:
    """Yield what the judge does after each turn: read the rubric and what it must see, then submit."""
    looks = [call("list_files", path=path) if path.endswith("/") else call("read_file", path=path, limit=4000)
             for path in ("./", "references/eval_rule.md", ANSWER, *package.opens)]  # fmt: skip
    for turn in range(package.plan.turns):
        submit = {"name": "submit_assessment", "arguments": submission(package, rubric, turn)}
        yield [*(looks if turn == 0 else looks[2:3]), {"call": submit}]


def call(name: str, **arguments: Any) -> Json:
    """Return a step that calls a tool."""
    return {"call": {"name": name, "arguments": arguments}}


def submission(package: Package, rubric: Rubric, turn: int) -> Json:
    """Return what the judge submits after a turn, counted from 0."""
    plan, last = package.plan, turn == package.plan.turns - 1
    evidence = [{"path": ANSWER, "quote": PASSES[turn]}]
    shares = filled(plan.shares[turn], len(rubric.checkpoints)) if plan.shares else []
    lines = zip(rubric.checkpoints, shares, strict=True)
    submitted: Json = {
        "checkpoints": [checkpoint(line.id, share, evidence) for line, share in lines],
        "caps": [cap(line.id, line.id == plan.cap, evidence) for line in rubric.caps],
        "recovery": {"recoverable": not (plan.lost and last), "reason": "It was looked through.", "evidence": evidence},
        "decision": decision(passed=last and package.status == "pass", lost=plan.lost and last),
    }  # fmt: skip
    if plan.holistic:
        submitted["holistic"] = {"score": plan.holistic[turn], "reason": "The formula gives it.", "evidence": evidence}
    return submitted


def filled(shares: Sequence[float], count: int) -> list[float]:
    """Return shares, the last one repeated."""
    return [*shares, *[shares[-1]] * (count - len(shares))]


def checkpoint(identity: str, share: float, evidence: list[Json]) -> Json:
    """Return what the judge says of a checkpoint."""
    state = {1.0: "met", 0.0: "unmet"}.get(share, "partial")
    line: Json = {"id": identity, "state": state, "reason": f"This is {state}.", "evidence": evidence if share else []}
    return line | ({"fraction": share} if state == "partial" else {})


def cap(identity: str, triggered: bool, evidence: list[Json]) -> Json:
    """Return what the judge says of a cap."""
    return {"id": identity, "triggered": triggered, "reason": "It was looked for.", "evidence": evidence * triggered}


def decision(*, passed: bool, lost: bool) -> Json:
    """Return the judge's own decision; its score is no function of what it grants."""
    verdict, state = ("fail", "terminal_failure") if lost else ("continue", "incomplete")
    if passed:
        verdict, state = "pass", "complete_and_passed"
    return {
        "verdict": verdict, "attempt_state": state, "recoverable": not lost, "score": OWN_SCORE, "confidence": 0.9,
        "rationale": "As the lines say.", "missing_artifacts": [], "guidance_tags": [],
    }  # fmt: skip
