"""Bad input and hostile executors in one session: each ends as design.md section 5 says, and harms nothing else.

All packages run in one session of two workers; while it runs, two of its containers are taken away. Each test then
looks at one package's record, its JUnit case and its evidence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from support.packages import DONE, Suite
from support.sessions import SESSION_SECONDS, Session, start, wait_until

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

CONFTEST = """
import dataclasses
import shutil

import docker
import pytest

from pytest_uniclaw.judge.supervisor import ChecksSupervisor
from pytest_uniclaw.sandbox.docker import DockerProvider

@pytest.fixture
def supervisor(task, supervisor):
    return ChecksSupervisor(check_seconds=3.0) if "grader" in task.task_id else supervisor

@pytest.fixture
def attempt_spec(attempt_spec):
    '''Let the free-space guard see a disk that is nearly full.'''
    if "disk" not in attempt_spec.task.task_id:
        return attempt_spec
    with docker.APIClient() as client:
        free = shutil.disk_usage(client.info()["DockerRootDir"]).free
    return dataclasses.replace(attempt_spec, provider=DockerProvider(disk_floor=free - (100 << 20)))
"""
ODD_NAMES = """
import os, socket
os.chdir("/tmp_workspace/results")
odd = [b"-rf", b"a\\nb", b"\\xff\\xfe.txt", b"\\x1b[31mred", b"x" * 255, b" ", b"a\\\\b", b"%41"]
for name in [*odd, "\\u202eexe.txt".encode()]:
    with open(name, "wb") as file:
        file.write(b"\\x00\\xff\\xed\\xa0\\x80 content")
os.symlink("/etc/passwd", "passwd")
os.symlink("/", "root")
os.symlink("nowhere", "dangling")
os.link("-rf", "hard")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.makedirs("/".join(["deep"] * 70))
open("/".join(["deep"] * 70) + "/file", "w").close()
"""
MANY = """
import os
os.chdir("/tmp_workspace/results")
os.mkdir("many")
for number in range(100_000):
    os.close(os.open(f"many/{number:06}", os.O_CREAT | os.O_WRONLY))
"""
DAEMON = """
echo done > /tmp_workspace/results/done.txt
setsid bash -c 'trap "" TERM HUP; while :; do echo still here; sleep 0.1; done' &
echo bye
"""
STUBBORN = """
echo done > /tmp_workspace/results/done.txt
trap '' TERM INT HUP QUIT
(setsid bash -c 'trap "" TERM; while :; do sleep 0.1; done' &)
while :; do sleep 0.1; done
"""
NOISE = r"""
printf '\377\376 \000 \033[31m \355\240\200 \n'
printf 'last words: \377 \000 \033[31m \355\240\200 ]]> \n'
exit 3
"""
EATER = """
echo done > /tmp_workspace/results/done.txt
python3 -c 'x = bytearray(1 << 30)'
"""
FILLER = """
echo done > /tmp_workspace/results/done.txt
for part in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/tmp_workspace/$part bs=1M count=50 status=none; done
exec sleep 50
"""
GRADER_RULE = """# Hidden evaluation rule

## 5. Checkpoints

- **0.20 — C1 Done.** done.txt says done.
- **0.20 — C2 Exit.** The grader ends.
- **0.20 — C3 Recursion.** The grader recurses.
- **0.20 — C4 Hang.** The grader hangs.
- **0.20 — C5 Memory.** The grader eats memory.
"""
GRADER_CHECK = """
import json, os, re
import pytest

@pytest.mark.checkpoint("C1")
def check_done(evidence):
    assert evidence.text("done.txt").strip() == "done"

@pytest.mark.checkpoint("C2")
def check_exit(evidence):
    os._exit(int(evidence.text("code.txt")))

@pytest.mark.checkpoint("C3")
def check_recursion(evidence):
    json.loads(evidence.text("nested.txt"))

@pytest.mark.checkpoint("C4")
def check_hang(evidence):
    re.match("(a+)+$", evidence.text("slow.txt"))

@pytest.mark.checkpoint("C5")
def check_memory(evidence):
    bytearray(int(evidence.text("size.txt")))[::4096] = b"x" * (int(evidence.text("size.txt")) // 4096)
"""
GRADER_SOLVE = """
cd /tmp_workspace/results
echo done > done.txt
echo 0 > code.txt
echo 4294967296 > size.txt
python3 -c 'open("nested.txt", "w").write("[" * 1_000_000); open("slow.txt", "w").write("a" * 60 + "!")'
"""
SLEEPER = f"{DONE}exec sleep 300\n"
NEVER_READY = {"services": {"tracker": {"ready": "false", "ready_seconds": 1}}}
TRACKER = [{"name": "tracker", "start": "echo waiting; sleep 100"}]
PASSING = ("first", "names", "devices", "many", "daemon", "huge", "last")
BROKEN = (
    "bad_yaml", "bad_bytes", "bad_nul", "bad_types", "bad_asset", "bad_parent", "bad_absolute", "bad_link",
    "bad_folder",
)  # fmt: skip


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The session, run to its end."""
    suite = Suite.make(tmp_path_factory.mktemp("battery"), conftest=CONFTEST)
    add_hostile(suite)
    add_broken(suite)
    session = start(suite.root, "-n", "2", "--uniclaw-infra-retries=0")
    with docker.APIClient() as client:
        ends = {"killed": client.kill, "removed": partial(client.remove_container, force=True)}
        wait_until(lambda: not take_away(session, client, ends), SESSION_SECONDS, "both sleepers have begun their turn")
    return session.finish()


def take_away(session: Session, client: docker.APIClient, ends: dict[str, Callable[[str], object]]) -> bool:
    """End the containers whose turn has begun; say whether some have not."""
    for name in [name for name in ends if session.began(name)]:
        label = f"uniclaw.run={session.run.name}"
        listed = client.containers(filters={"label": label})
        (container,) = (c["Id"] for c in listed if f"task_101_{name}-" in c["Labels"]["uniclaw.attempt"])
        ends.pop(name)(container)
    assert session.process.poll() is None or not ends, session.output
    return bool(ends)


def add_hostile(suite: Suite) -> None:
    for name in ("killed", "removed"):
        suite.add(name, SLEEPER, timeout_seconds=300, max_total_seconds=300)
    suite.add("first")
    suite.add("names", python(ODD_NAMES) + DONE)
    suite.add("devices", f"cd /tmp_workspace/results; mknod b b 1 0; mknod c c 1 3\n{DONE}", uniclaw={"user": "root"})
    suite.add("swapped", "rmdir /tmp_workspace/results; ln -s /etc /tmp_workspace/results")
    suite.add("trap", f"{DONE}rm /etc/group; mkfifo /etc/group", uniclaw={"user": "root"})
    suite.add("many", python(MANY) + DONE)
    suite.add("daemon", DAEMON)
    suite.add("huge", f"truncate -s 300M /tmp_workspace/results/huge.bin\n{DONE}")
    suite.add("stubborn", STUBBORN, timeout_seconds=2)
    suite.add("stubborn_total", STUBBORN, max_total_seconds=2)
    suite.add("noise", NOISE)
    suite.add("kills", f"{DONE}kill -9 -1\nkill -9 $$\n")
    suite.add("kills_root", f"{DONE}kill -9 -1\nsleep 5\n", uniclaw={"user": "root"})
    suite.add("memory", EATER, uniclaw={"memory": "256m"})
    suite.add("disk", FILLER)
    suite.add("grader", GRADER_SOLVE, check=GRADER_CHECK, files={"references/eval_rule.md": GRADER_RULE})
    suite.add("service", services=TRACKER, uniclaw=NEVER_READY, files={"services/tracker/data": ""})
    suite.add("last")


def add_broken(suite: Suite) -> None:
    for name in BROKEN:
        suite.add(name)
    data = yaml.safe_load(suite.yaml("bad_types").read_text())
    suite.yaml("bad_yaml").write_text("task_id: [unclosed\n  category: :\n")
    suite.yaml("bad_bytes").write_bytes(b"task_id: \xff\xfe\n")
    suite.yaml("bad_nul").write_bytes(b"task_id: a\0b\n")
    suite.yaml("bad_types").write_text(yaml.safe_dump({**data, "timeout_seconds": "20m", "success_threshold": 7}))
    sources = {"asset": "missing.csv", "parent": "../../secret", "absolute": "/etc/passwd", "link": "link"}
    for name, source in ((f"bad_{kind}", source) for kind, source in sources.items()):
        fields = yaml.safe_load(suite.yaml(name).read_text())
        suite.yaml(name).write_text(yaml.safe_dump({**fields, "sources": [source]}))
    (suite.folder("bad_link") / "sources").mkdir()
    (suite.folder("bad_link") / "sources" / "link").symlink_to("/etc/passwd")
    suite.folder("bad_folder").rename(suite.folder("bad_folder").with_name("elsewhere"))


def python(source: str) -> str:
    """Return the shell command that runs a Python program."""
    return f"python3 - <<'PYTHON'\n{source}\nPYTHON\n"


def results_of(session: Session, name: str) -> Path:
    folder: Path = session.attempt(name)["folder"]
    return folder / "turns" / "1" / "evidence" / "results"


def entries(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def test_the_session_ends_as_a_whole(battery: Session) -> None:
    assert battery.code == pytest.ExitCode.TESTS_FAILED, battery.output
    assert "INTERNALERROR" not in battery.output
    assert "node down" not in battery.output
    run = len(battery.cases) - len(BROKEN)
    judged = run - 2
    assert run == 20
    assert f"7/{run} passed, 2 infra, coverage {judged}/{run}" in battery.output


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_in_spite_of_it(battery: Session, name: str) -> None:
    assert (battery.cases[name].outcome, battery.cases[name].status) == ("passed", "pass"), battery.cases[name].message
    assert battery.attempt(name)["score"] == 1.0


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package_is_a_collection_error_that_names_its_file(battery: Session, name: str) -> None:
    assert battery.cases[name].outcome == "error"
    assert f"task_101_{name}.yaml" in battery.cases[name].message
    assert "Traceback" not in battery.cases[name].message


def test_links_special_files_and_odd_names_are_refused_or_made_safe(battery: Session) -> None:
    manifest = battery.attempt("names")["turns"][0]["manifest"]
    refused = {entry["path"]: entry["reason"] for entry in manifest["refused"]}
    assert refused["passwd"] == refused["root"] == refused["dangling"] == "symbolic link"
    assert "FIFO" in refused["fifo"]
    assert {"hard link"} == {refused[name] for name in ("hard", "-rf") if name in refused}
    assert any(reason.startswith("unsafe name") for reason in refused.values())
    found = {path.name for path in entries(results_of(battery, "names"))}
    assert {"done.txt", "a%0Ab", "%FF%FE.txt", "%1B[31mred", "%E2%80%AEexe.txt", "x" * 255, " "} <= found
    for path in entries(results_of(battery, "names")):
        assert stat.S_ISREG(path.lstat().st_mode) or stat.S_ISDIR(path.lstat().st_mode)


def test_devices_are_refused(battery: Session) -> None:
    refused = battery.attempt("devices")["turns"][0]["manifest"]["refused"]
    assert {entry["reason"] for entry in refused} == {"block device", "character device"}


def test_a_results_folder_that_became_a_link_is_not_followed(battery: Session) -> None:
    attempt = battery.attempt("swapped")
    assert attempt["status"] == "budget_exhausted"
    assert attempt["turns"][0]["manifest"]["files"] == []
    assert list(entries(results_of(battery, "swapped"))) == []


def test_a_trap_for_the_engine_costs_the_executor_its_evidence(battery: Session) -> None:
    attempt = battery.attempt("trap")
    assert (battery.cases["trap"].outcome, attempt["status"]) == ("failure", "budget_exhausted")
    (refused,) = attempt["turns"][0]["manifest"]["refused"]
    assert refused["path"] == "/etc/group"
    assert attempt["score"] == 0.0


def test_a_hundred_thousand_files_are_capped_and_counted(battery: Session) -> None:
    manifest = battery.attempt("many")["turns"][0]["manifest"]
    assert len(manifest["files"]) == 10_000
    assert manifest["refused_total"] == 90_001
    assert len(manifest["refused"]) == 1000


def test_a_huge_file_is_refused(battery: Session) -> None:
    (refused,) = battery.attempt("huge")["turns"][0]["manifest"]["refused"]
    assert refused["reason"].startswith("too large")


def test_a_daemon_does_not_hold_the_turn(battery: Session) -> None:
    (turn,) = battery.attempt("daemon")["turns"]
    assert (turn["ending"], turn["exit_code"]) == ("exited", 0)
    assert turn["seconds"] < 30


INCOMPLETE = {
    "stubborn": ("deadline", None, ()),
    "noise": ("exited", 3, ()),
    "kills": ("exited", 137, ()),
    "kills_root": ("exited", 137, ()),
    "memory": ("exited", 137, ("out_of_memory",)),
    "disk": ("lost", None, ("sandbox_lost:disk",)),
    "killed": ("lost", None, ("sandbox_lost:killed",)),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_an_executor_that_did_not_finish(battery: Session, name: str) -> None:
    ending, code, flags = INCOMPLETE[name]
    attempt = battery.attempt(name)
    (turn,) = attempt["turns"]
    assert (battery.cases[name].outcome, battery.cases[name].status) == ("failure", "executor_incomplete")
    assert (turn["ending"], turn["exit_code"], tuple(attempt["flags"])) == (ending, code, flags), attempt["reason"]
    assert not turn["finished"]
    assert attempt["score"] == 0.0


def test_a_container_that_was_removed_from_outside_is_infrastructure(battery: Session) -> None:
    attempt = battery.attempt("removed")
    assert (battery.cases["removed"].outcome, battery.cases["removed"].status) == ("error", "infra_error")
    assert [turn["ending"] for turn in attempt["turns"]] == ["lost"]
    assert "the sandbox was removed from outside" in attempt["reason"]


@pytest.mark.parametrize("name", ["stubborn", "kills", "kills_root", "memory"])
def test_what_an_unfinished_turn_left_is_graded_but_does_not_count(battery: Session, name: str) -> None:
    assert battery.attempt(name)["unfinished_best"] == 1.0


def test_the_total_time_ends_an_attempt(battery: Session) -> None:
    assert (battery.cases["stubborn_total"].outcome, battery.cases["stubborn_total"].status) == (
        "failure", "global_timeout",
    )  # fmt: skip


def test_output_that_is_no_text_is_kept_whole_and_reported_clean(battery: Session) -> None:
    attempt = battery.attempt("noise")
    log = (attempt["folder"] / "turns" / "1" / "agent.log").read_bytes()
    assert b"\xff\xfe \x00 \x1b[31m \xed\xa0\x80 \n" in log
    assert "last words: " in battery.cases["noise"].message
    for text in (battery.cases["noise"].message, battery.output, attempt["reason"]):
        text.encode("utf-8")
    assert "\x1b" not in battery.cases["noise"].message
    assert "\x1b[31m" not in battery.output


def test_a_grader_that_crashes_costs_its_checkpoints(battery: Session) -> None:
    attempt = battery.attempt("grader")
    assert (battery.cases["grader"].outcome, attempt["status"]) == ("failure", "budget_exhausted")
    assert attempt["score"] == 0.2
    assert {"grader_crash", "check_error"} <= set(attempt["flags"])
    lines = {line["id"]: line for line in attempt["turns"][0]["verdict"]["checkpoints"]}
    assert {name for name, line in lines.items() if line["state"] == "met"} == {"C1"}
    assert {name for name, line in lines.items() if "grader_crash" in line["flags"]} == {"C2", "C5"}
    assert "RecursionError" in lines["C3"]["rationale"] or "nested too deeply" in lines["C3"]["rationale"]
    assert "did not finish within 3" in lines["C4"]["rationale"]


def test_a_service_that_is_never_ready_is_infrastructure(battery: Session) -> None:
    assert (battery.cases["service"].outcome, battery.cases["service"].status) == ("error", "infra_error")
    assert "service 'tracker' was not ready after" in battery.cases["service"].message
    assert "score" not in battery.cases["service"].properties
    attempt = battery.attempt("service")
    assert attempt["turns"] == []
    assert (attempt["folder"] / "services" / "tracker.log").read_text() == "waiting\n"
    section = battery.output.partition("= INFRA =")[2].partition("= uniclaw =")[0]
    assert "its log, services/tracker.log, ends:\nwaiting\n  see " in section


def test_nothing_of_the_session_is_left(battery: Session) -> None:
    with docker.APIClient() as client:
        assert client.containers(all=True, filters={"label": f"uniclaw.run={battery.run.name}"}) == []


def test_without_workers_a_broken_package_stops_the_session_unless_told_otherwise(tmp_path: Path) -> None:
    suite = Suite.make(tmp_path / "suite")
    suite.add("broken", timeout_seconds="20m")
    suite.add("sound")
    stopped = start(suite.root).finish()
    assert stopped.code == pytest.ExitCode.INTERRUPTED
    assert "sound" not in stopped.cases
    going_on = start(suite.root, "--continue-on-collection-errors").finish()
    assert going_on.code == pytest.ExitCode.TESTS_FAILED
    assert (going_on.cases["broken"].outcome, going_on.cases["sound"].outcome) == ("error", "passed")
