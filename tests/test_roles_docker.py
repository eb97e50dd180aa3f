"""The three roles with models in containers: scripted, from a cassette, at a provider, judged again, capped.

What is played is demo/: incomplete, still incomplete, recovered. tests/test_demo.py has its figures without containers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.packages import DONE, Suite
from support.sessions import Session, run, start

from pytest_uniclaw.sandbox.reaper import remove_owned
from tests.support.faulty import FaultyProvider, answer
from tests.support.judging import calls, use
from tests.support.role_provider import RoleProvider
from tests.support.scripted_upstream import Act, running

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

Json = dict[str, Any]
ROOT = Path(__file__).parents[1]
TASK = "task_102_01_override_root_cause"
TASKS = "suites/102_exploration"
SCRIPTED = (
    "--agent=nanobot", "--model=script:demo/executor.yaml", "--supervisor=script:demo/supervisor.yaml",
    "--simulator=script:demo/user.yaml",
)  # fmt: skip
CALLS = {"executor": 10, "supervisor": 8, "user_simulator": 4}
SCORES = [0.45, 0.7, 1.0]
KEY = "sk-real-key-of-the-provider-0815"
TOML = """
[providers.real]
base_url = "{url}"
api_key_env = "REAL_KEY"

[providers.real.prices]
judge = {{input = 1.0, output = 2.0}}
user = {{input = 1.0, output = 2.0}}
"""
AT_PROVIDER = (
    "--agent=nanobot", "--model=real/agent", "--supervisor=model", "--uniclaw-supervisor-model=real/judge",
    "--simulator=model", "--uniclaw-simulator-model=real/user",
)  # fmt: skip
CALL_USD = (11 * 1.0 + 3 * 2.0) / 1e6
REFUSED = "Your score is only 0.70"
"""How the candidate begins that the rewriter refuses."""


def package(root: Path, *, scripts: bool = True) -> Path:
    """Make a checkout of the one task, with or without every script."""
    suite, injection = Path("suites", "102_exploration"), Path("injection", "102_exploration", TASK)
    (root / suite).mkdir(parents=True)
    shutil.copy(ROOT / suite / f"{TASK}.yaml", root / suite)
    shutil.copytree(ROOT / injection, root / injection)
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    if scripts:
        shutil.copytree(ROOT / "demo", root / "demo")
    else:
        shutil.rmtree(root / "injection" / "102_exploration" / TASK / "script")
    return root


def attempt_of(run_directory: Path) -> tuple[Path, Json]:
    (path,) = run_directory.glob(f"a1/*/*/*/{TASK}/p1-*/uniclaw.json")
    return path.parent, json.loads(path.read_bytes())


def ledger(session: Session) -> list[Json]:
    return [json.loads(line) for line in (session.run / "models" / "ledger.jsonl").read_bytes().splitlines()]


def verdicts(run_directory: Path) -> bytes:
    """The verdicts as the demo compares them."""
    command = [sys.executable, str(ROOT / "demo" / "verdicts.py"), str(run_directory)]
    return subprocess.run(command, check=True, capture_output=True, timeout=30).stdout


def shown(report: Path) -> str:
    """The tables of an HTML report, which lie in it as JSON with escaped texts."""
    return unescape(unescape(report.read_text("utf-8")))


def user_messages(folder: Path) -> list[str]:
    """What the executor was told, by its own transcript, from the first follow-up on."""
    records = [json.loads(line) for line in (folder / "turns/3/evidence/transcript.jsonl").read_text().splitlines()]
    messages = [record["message"] for record in records if record.get("message", {}).get("role") == "user"]
    return ["".join(block["text"] for block in message["content"]) for message in messages][1:]


def hidden_lines() -> list[bytes]:
    """Lines that stand in the references only, and what the hidden roles say."""
    folder = ROOT / "injection" / "102_exploration" / TASK
    public = "\n".join(path.read_text() for path in sorted((folder / "sources").rglob("*")) if path.is_file())
    rubric = (folder / "references" / "eval_rule.md").read_text().splitlines()
    lines = [line for line in rubric if len(line) > 60 and line not in public]
    return [line.encode() for line in [*lines, REFUSED, "The cause is right. One host, all suspects"]]


# Scripted, recorded, judged again


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Session:
    root = package(tmp_path_factory.mktemp("scripted"))
    options = (*SCRIPTED, "--uniclaw-cassette-record=cassette", "--html=report.html", "--self-contained-html")
    return run(root, *options, targets=(TASKS,))


def test_three_turns_recover_as_the_scripts_state(scripted: Session) -> None:
    assert scripted.code == pytest.ExitCode.OK, scripted.output
    _, attempt = attempt_of(scripted.run)
    turns = attempt["turns"]
    assert (attempt["status"], attempt["score"], attempt["flags"]) == ("pass", 1.0, [])
    assert [turn["verdict"]["score"] for turn in turns] == SCORES
    assert [turn["handoff"] for turn in turns] == [
        {"verdict": verdict, "attempt_state": state, "recoverable": True, "score": score}
        for verdict, state, score in zip(
            ("continue", "continue", "pass"), ("incomplete", "incomplete", "complete_and_passed"), SCORES, strict=True
        )
    ]
    assert [turn["verdict"]["drift"] for turn in turns] == [-0.05, 0.05, -0.05]
    assert [turn["finished"] for turn in turns] == [True] * 3


def test_the_rewritten_follow_ups_reached_the_executor(scripted: Session) -> None:
    folder, attempt = attempt_of(scripted.run)
    first, second = (turn["follow_up"] for turn in attempt["turns"][:2])
    assert user_messages(folder) == [first["message"], second["message"]]
    assert first["message"] != first["candidate"]
    assert second["candidate"].startswith(REFUSED)
    assert second["message"] == second["revised"]


def test_every_call_of_each_role_is_in_the_ledger(scripted: Session) -> None:
    folder, attempt = attempt_of(scripted.run)
    rows = ledger(scripted)
    assert Counter(row["role"] for row in rows) == CALLS
    assert {(row["class"], row["provider"], row["attempt"]) for row in rows} == {
        ("ok", "script", attempt["attempt_id"])
    }
    usage = json.loads((folder / "usage.json").read_text())
    assert {role: row["call_count"] for role, row in usage["summary"].items()} == CALLS
    assert usage["uniclaw"]["cost_usd"] == 0.0


def test_the_report_shows_handoff_rewriter_and_costs(scripted: Session) -> None:
    page = shown(scripted.root / "report.html")
    for words in (
        "handoff to the user simulator", "judge's own word", "drift +0.05", REFUSED, "asked for another message",
        "dropped: completion; sentences kept: 2", "user simulator</td><td class=n>4</td>", "0 USD",
    ):  # fmt: skip
        assert words in page, words


def test_it_replays_without_scripts_and_provider(scripted: Session, tmp_path: Path) -> None:
    root = package(tmp_path, scripts=False)
    assert not list(root.rglob("model.yaml"))
    assert not (root / "demo").exists()
    cassette = f"--uniclaw-cassette-replay={scripted.root / 'cassette'}"
    replayed = run(root, *SCRIPTED, cassette, targets=(TASKS,))
    assert replayed.code == pytest.ExitCode.OK, replayed.output
    assert_replayed(replayed, scripted, "scripted-executor")


def assert_replayed(replayed: Session, recorded: Session, model: str) -> None:
    assert verdicts(replayed.run) == verdicts(recorded.run)
    folder, attempt = attempt_of(replayed.run)
    assert [lane | {"entries": 0} for lane in attempt["cassettes"]] == [
        {
            "lane": f"nanobot/{model}/{TASK}/a1/{role}",
            "entries": 0,
            "unused": [],
            "drift": [],
            "misses": [],
            "outdated": [],
        }
        for role in CALLS
    ]
    assert {lane["lane"].rpartition("/")[2]: lane["entries"] for lane in attempt["cassettes"]} == CALLS
    assert {(row["provider"], row["cost_usd"]) for row in ledger(replayed)} == {("replay", 0.0)}
    assert json.loads((folder / "usage.json").read_text())["uniclaw"]["cost_usd"] == 0.0


def uniclaw(root: Path, *arguments: str, code: int = 0) -> str:
    """Run the command line there, see it end with that status, and return what it prints."""
    command = [str(Path(sys.executable).with_name("uniclaw")), *arguments]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def regraded(root: Path, supervisor: str) -> tuple[str, Path]:
    """Regrade the latest run; the output, and where the new run is."""
    output = uniclaw(root, "regrade", "latest", TASKS, f"--supervisor={supervisor}")
    (directory,) = re.findall(r"^run directory: (.*)$", output, re.MULTILINE)
    return output, root / directory


def strict(scripted: Session) -> Path:
    """Write the script of a judge who is not content with the hosts in the last turn."""
    data = yaml.safe_load((scripted.root / "demo" / "supervisor.yaml").read_text())
    last = data["lanes"][TASK]["turns"][2][-1]["call"]["arguments"]
    last["checkpoints"][2] = {"id": "C3", "state": "unmet", "reason": "the hosts are not convincing"}
    last["decision"] |= {"verdict": "continue", "attempt_state": "incomplete"}
    path = scripted.root / "strict.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_stored_evidence_is_judged_again_and_compared(scripted: Session) -> None:
    stored, before = attempt_of(scripted.run)
    seen = {path: path.stat().st_mtime_ns for path in stored.rglob("*") if path.is_file()}

    output, checked = regraded(scripted.root, "checks")
    folder, after = attempt_of(checked)
    assert f"[1/1] {TASK} nanobot: 1.00 pass -> 1.00 pass" in output
    assert [turn["verdict"]["score"] for turn in after["turns"]] == SCORES, "the checks agree with the scripted judge"
    assert after["digests"] == before["digests"] | {"supervisor": after["digests"]["supervisor"]}
    assert after["digests"]["supervisor"] != before["digests"]["supervisor"]
    assert not (folder / "turns").exists(), "evidence is copied nowhere"
    assert (folder / after["turns"][2]["directory"] / "evidence" / "results" / "report.md").is_file()

    output, other = regraded(scripted.root, f"script:{strict(scripted)}")
    _, after = attempt_of(other)
    assert f"{TASK} nanobot: 1.00 pass -> 0.85 budget_exhausted" in output
    assert [turn["verdict"]["score"] for turn in after["turns"]] == [0.45, 0.7, 0.85]
    assert [turn["message"] for turn in after["turns"]] == [turn["message"] for turn in before["turns"]]
    assert (other / "models" / "ledger.jsonl").read_text().count('"role":"supervisor"') == CALLS["supervisor"]

    assert {path: path.stat().st_mtime_ns for path in seen} == seen
    assert scripted.run == stored.parents[5], "the run that was made is the latest still"
    assert agreement(scripted.root, checked) == (1.0, 0.0, [])
    assert agreement(scripted.root, other) == (0.0, pytest.approx(0.15), [TASK])


def agreement(root: Path, other: Path) -> tuple[float, float, list[str]]:
    """How far the latest run and another agree: share of same verdicts, mean error, tasks with other verdicts."""
    (pair,) = json.loads(uniclaw(root, "agreement", "latest", str(other), "--json"))["pairs"]
    figures = {figure["name"]: figure["value"] for figure in pair["figures"]}
    return figures["same verdict"], figures["mean absolute error"], [key[0] for key in pair["disagreements"]]


# At a provider, and from its cassette


LOOK = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
LOOK_SECONDS = 0.4
"""How often one container is looked into."""


@dataclass
class Watch:
    """What was seen of a run's containers while they ran: their records, and where they held which of the needles."""

    needles: Mapping[str, bytes]
    records: dict[str, Json] = field(default_factory=dict)
    hits: set[tuple[str, str, str]] = field(default_factory=set)
    looks: Counter[tuple[str, str]] = field(default_factory=Counter)
    due: dict[str, float] = field(default_factory=dict)

    def until_the_end(self, session: Session) -> Session:
        """Look again and again until the session ends."""
        session.wait_for_run()
        try:
            with docker.APIClient() as client:
                while session.process.poll() is None:
                    for listed in client.containers(filters={"label": f"uniclaw.run={session.run.name}"}):
                        with suppress(docker.errors.APIError):  # it ended or was paused meanwhile
                            self._look(client, listed["Id"])
                    time.sleep(0.1)
        finally:
            session.process.terminate()
        return session.finish()

    def of(self, image: str) -> dict[str, Json]:
        """The containers made of an image."""
        return {name: r for name, r in self.records.items() if image in r["Config"]["Image"]}

    def _look(self, client: Any, ident: str) -> None:
        if time.monotonic() < self.due.get(ident, 0.0):
            return
        record = client.inspect_container(ident)
        name = record["Name"]
        self.records[name] = record
        self._note(name, "inspect", json.dumps(record).encode())
        # Privileged, for without its rights root may not read what others' processes were started with.
        command = client.exec_create(ident, ["sh", "-c", LOOK], user="root", privileged=True)
        self._note(name, "proc", client.exec_start(command["Id"]))
        if "nanobot" in record["Config"]["Image"]:
            for folder in ("/tmp_workspace", "/home/agent", "/opt/uniclaw"):
                self._note(name, folder, b"".join(client.get_archive(ident, folder)[0]))
        self.due[ident] = time.monotonic() + LOOK_SECONDS

    def _note(self, name: str, where: str, data: bytes) -> None:
        self.looks[name, where] += bool(data)
        self.hits |= {(name, where, kind) for kind, needle in self.needles.items() if needle in data}


@dataclass
class Provided:
    """The session at the provider, what was seen of it, and what the provider was sent."""

    session: Session
    watch: Watch
    requests: Sequence[Json]
    hidden: Mapping[str, bytes]


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Provided:
    root = package(tmp_path_factory.mktemp("provided"))
    hidden = {f"hidden {number}": line for number, line in enumerate(hidden_lines())}
    known = {"key": KEY.encode(), "virtual key": b'"uck-', "sent": b"I only find finding.json in there"}
    watch = Watch(known | hidden)
    scripts = {"agent": "executor", "judge": "supervisor", "user": "user"}
    provider = RoleProvider(TASK, **{model: root / "demo" / f"{name}.yaml" for model, name in scripts.items()})
    with running(provider) as server:
        (root / "uniclaw.toml").write_text(TOML.format(url=server.base_url))
        options = (*AT_PROVIDER, "--uniclaw-cassette-record=cassette", "--html=report.html", "--self-contained-html")
        session = start(root, *options, environment={"REAL_KEY": KEY}, targets=(TASKS,))
        watch.until_the_end(session)
    return Provided(session, watch, provider.requests, hidden)


def test_the_run_at_a_provider_ends_alike(provided: Provided, scripted: Session) -> None:
    assert provided.session.code == pytest.ExitCode.OK, provided.session.output
    folder, attempt = attempt_of(provided.session.run)
    assert [turn["verdict"]["score"] for turn in attempt["turns"]] == SCORES
    assert user_messages(folder) == user_messages(attempt_of(scripted.run)[0])
    assert Counter(request["body"]["model"] for request in provided.requests) == {"agent": 10, "judge": 8, "user": 4}
    assert {request["headers"]["authorization"] for request in provided.requests} == {f"Bearer {KEY}"}


def test_a_price_makes_a_cost_and_without_one_it_is_unknown(provided: Provided) -> None:
    folder, _ = attempt_of(provided.session.run)
    usage = json.loads((folder / "usage.json").read_text())["uniclaw"]
    costs = {role: row["cost_usd"] for role, row in usage["roles"].items()}
    assert costs == {
        "executor": "unknown", "supervisor": pytest.approx(8 * CALL_USD), "user_simulator": pytest.approx(4 * CALL_USD),
    }  # fmt: skip
    assert usage["cost_usd"] == "unknown"
    page = shown(provided.session.root / "report.html")
    assert "0.000136 USD" in page
    assert "<td class=n>unknown</td></tr>" in page


def test_no_container_held_the_key(provided: Provided) -> None:
    watch = provided.watch
    (executor,) = watch.of("nanobot")
    assert min(watch.looks[executor, where] for where in ("inspect", "proc", "/tmp_workspace", "/home/agent")) > 3
    workspaces = [name for name in watch.of("grader") if watch.looks[name, "proc"]]
    assert workspaces, "of judge and user; each lives for a moment only, so a busy machine does not see them all"
    assert [hit for hit in watch.hits if hit[2] == "key"] == []
    virtual = {(name, where) for name, where, kind in watch.hits if kind == "virtual key"}
    assert virtual == {(executor, "/home/agent")}, "a look finds what is there"


def test_the_executor_held_what_was_sent_and_nothing_hidden(provided: Provided) -> None:
    executors = provided.watch.of("nanobot")
    found = {kind for name, _, kind in provided.watch.hits if name in executors}
    assert found == {"sent", "virtual key"}


def test_no_file_of_the_run_holds_the_key(provided: Provided) -> None:
    files = [path for path in provided.session.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 100
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("role", ["executor", "user_simulator"])
def test_what_these_roles_read_has_no_line_of_the_references(provided: Provided, role: str) -> None:
    folder, _ = attempt_of(provided.session.run)
    texts = [path.read_bytes() for path in (folder / "exchange" / role).rglob("*") if path.is_file()]
    assert len(texts) > 5
    own = REFUSED.encode()
    leaked = [line for line in provided.hidden.values() for text in texts if line in text and line != own]
    assert leaked == []
    assert any(own in text for text in texts) == (role == "user_simulator")


def test_it_replays_with_the_provider_gone(provided: Provided, tmp_path: Path) -> None:
    root = package(tmp_path, scripts=False)
    cassette = f"--uniclaw-cassette-replay={provided.session.root / 'cassette'}"
    replayed = run(root, *AT_PROVIDER, cassette, targets=(TASKS,))
    assert replayed.code == pytest.ExitCode.OK, replayed.output
    assert_replayed(replayed, provided.session, "real-agent")


# Through the relay


def test_a_session_through_the_relay(tmp_path: Path) -> None:
    suite = Suite.make(tmp_path)
    script = [[{"shell": f"mkdir -p /tmp_workspace/results; {DONE}"}, {"say": "It is done."}]]
    suite.add("relayed", agent_sys="nanobot", script=script)
    watch = Watch({})
    session = start(suite.root, "--model=script", "--uniclaw-gateway-route=relay")
    watch.until_the_end(session)
    assert session.code == pytest.ExitCode.OK, session.output
    assert session.attempt("relayed")["usage"][0]["calls"] == 2
    (executor,) = watch.of("nanobot").values()
    assert [(m["Type"], m["RW"], m["Destination"]) for m in executor["Mounts"]] == [("volume", False, "/run/uniclaw")]
    assert remove_owned(session.run.name).containers == 0
    with docker.APIClient() as client:
        assert not client.volumes(filters={"label": f"uniclaw.run={session.run.name}"})["Volumes"]


# With a cap on money


PRICED = """
[providers.dear]
base_url = "{url}"

[providers.dear.prices]
judge = {{input = 100.0, output = 0.0}}
"""
CAPPED = 5
"""Tasks of the session; two of them can be paid."""


def judged() -> Act:
    """A judge's answer that costs 0.90 USD."""
    proof = [{"path": "evidence/results/done.txt", "quote": "done"}]
    payload = {
        "checkpoints": [{"id": "C1", "state": "met", "reason": "it says so", "evidence": proof}],
        "recovery": {"recoverable": True, "reason": "nothing is missing"},
        "decision": {
            "verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": True, "score": 1.0,
            "confidence": 1.0, "rationale": "done.txt says done",
        },
    }  # fmt: skip
    usage = {"prompt_tokens": 9000, "completion_tokens": 10, "total_tokens": 9010}
    return answer(lambda nonce: calls(use("submit_assessment", payload | {"nonce": nonce})), usage)


@pytest.fixture(scope="module")
def dear() -> Iterator[FaultyProvider]:
    with running(FaultyProvider()) as server:
        server.lanes["judge"] = [judged()]
        yield server


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["inline", "workers"])
def test_a_session_ends_when_its_money_is_spent(dear: FaultyProvider, tmp_path: Path, workers: Sequence[str]) -> None:
    suite = Suite.make(tmp_path)
    (suite.root / "uniclaw.toml").write_text(PRICED.format(url=dear.base_url))
    for number in range(CAPPED):
        suite.add(f"task{number}", check="")
    options = ("--supervisor=model", "--uniclaw-supervisor-model=dear/judge", "--uniclaw-max-cost=2")
    session = run(suite.root, *options, *workers)
    assert session.code == pytest.ExitCode.INTERRUPTED, session.output
    assert "the models have cost 1.80 USD: --uniclaw-max-cost=2 is reached" in session.output
    statuses = Counter(case.status for case in session.cases.values())
    assert statuses["pass"] == 2
    assert statuses["infra_error"] >= 1
    refused = [session.attempt(name) for name, case in session.cases.items() if case.status == "infra_error"]
    assert {(attempt["tries"], *attempt["flags"]) for attempt in refused} == {(1, "session_budget")}
    left = CAPPED - statuses.total()
    assert left >= 1
    assert f"NOT RUN: {left} of {CAPPED}" in session.output
    assert f"{left} not run, coverage 2/{CAPPED}" in session.output
    spent = [row["cost_usd"] for row in ledger(session) if row["class"] == "ok"]
    assert spent == [pytest.approx(0.9)] * 2


def test_a_regrade_ends_when_its_money_is_spent(dear: FaultyProvider, tmp_path: Path) -> None:
    suite = Suite.make(tmp_path)
    (suite.root / "uniclaw.toml").write_text(f"max_cost = 0.5\n{PRICED.format(url=dear.base_url)}")
    for name in "ab":
        suite.add(name)
    assert run(suite.root, "--supervisor=checks").code == 0
    judge = ("--supervisor=model", "--supervisor-model=dear/judge")
    output = uniclaw(suite.root, "regrade", "latest", *judge, code=1)
    assert "[1/2] task_101_a oracle: 1.00 pass -> 1.00 pass" in output
    assert "[2/2] task_101_b oracle: 1.00 pass -> - infra_error" in output
    output = uniclaw(suite.root, "regrade", "latest", *judge, "--max-cost=5")
    assert "[2/2] task_101_b oracle: 1.00 pass -> 1.00 pass" in output
