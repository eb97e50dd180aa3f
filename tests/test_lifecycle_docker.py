"""However a session ends, nothing of it is left after ten seconds (design.md invariant 7).

All sessions start at once and run into turns that would last for minutes. Each is then ended in its own way, and a
test looks for what it left: containers, networks and volumes by the run's label, temporary folders by its name,
processes by the tree below the controller.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.packages import Suite
from support.sessions import Process, Session, alive, process_tree, start, wait_until

from pytest_uniclaw.paths import scratch_prefix

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

GONE_SECONDS = 10.0
SLEEP = "echo begun; exec sleep 900\n"
HANG = [[{"hang": True}]]
EXIT_ON_REQUEST = """
import os, threading, time
from pathlib import Path

import pytest

@pytest.fixture(autouse=True)
def exit_on_request(request):
    '''Let the process that runs the sleeper die without a word once the file appears.'''
    def watch():
        while not Path("die").exists():
            time.sleep(0.05)
        os._exit(9)
    if "sleeper" in request.node.nodeid:
        threading.Thread(target=watch, daemon=True).start()
"""


def to_controller(number: int) -> Callable[[Session], None]:
    return lambda session: os.kill(session.process.pid, number)


def to_group(number: int) -> Callable[[Session], None]:
    return lambda session: os.killpg(session.process.pid, number)


def exit_at_once(session: Session) -> None:
    (session.root / "die").touch()


@dataclass(frozen=True)
class Way:
    """One way to end a session, and the exit status that the controller then has."""

    name: str
    workers: int
    end: Callable[[Session], None]
    code: int

    @property
    def label(self) -> str:
        """Name of the way as a test id and a folder."""
        return f"{self.name} -n {self.workers}".replace(" ", "-").replace(".", "-")


def ways(workers: int) -> tuple[tuple[Way, ...], tuple[Way, ...]]:
    """Return the ways in which a controller can act and those in which it cannot."""
    acting = (
        Way("SIGINT to the controller", workers, to_controller(signal.SIGINT), pytest.ExitCode.INTERRUPTED),
        Way("SIGINT to the group", workers, to_group(signal.SIGINT), pytest.ExitCode.INTERRUPTED),
        Way("SIGTERM to the controller", workers, to_controller(signal.SIGTERM), pytest.ExitCode.INTERRUPTED),
    )
    sudden = (
        Way("SIGKILL of the controller", workers, to_controller(signal.SIGKILL), -signal.SIGKILL),
        Way("SIGKILL of the group", workers, to_group(signal.SIGKILL), -signal.SIGKILL),
    )
    return acting, sudden


ACTING = (*ways(0)[0], *ways(2)[0])
SUDDEN = (*ways(0)[1], Way("os._exit", 0, exit_at_once, 9), *ways(2)[1])


@dataclass(frozen=True)
class Remains:
    """What is left of a run."""

    containers: tuple[str, ...]
    networks: tuple[str, ...]
    volumes: tuple[str, ...]
    folders: tuple[Path, ...]
    processes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.containers or self.networks or self.volumes or self.folders or self.processes)


@dataclass
class Running:
    """A session in the middle of its turns, with the processes it has; ``ended`` is the monotonic time of its end."""

    session: Session
    processes: dict[Process, str]
    ended: float = 0.0

    def end(self, way: Way) -> None:
        """End it."""
        way.end(self.session)
        self.ended = time.monotonic()


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Iterator[dict[str, Running]]:
    """Every session that is going to be ended, in its turns; those that end suddenly have been ended, all at once."""
    root = tmp_path_factory.mktemp("lifecycle")
    started = {way.label: begin(root / way.label, way.workers) for way in (*ACTING, *SUDDEN)}
    try:
        found = {name: Running(session, ready(session, engine)) for name, session in started.items()}
        for way in SUDDEN:
            found[way.label].end(way)
        yield found
    finally:
        for session in started.values():
            if session.process.poll() is None:
                os.killpg(session.process.pid, signal.SIGKILL)
                session.process.wait(10)


def begin(root: Path, workers: int) -> Session:
    """Start a session whose first two tasks never end; the second waits for its model's answer."""
    suite = Suite.make(root, conftest=EXIT_ON_REQUEST)
    suite.add("01_sleeper", SLEEP, timeout_seconds=900, max_total_seconds=900, uniclaw={"network": "internet"})
    suite.add("02_hanger", script=HANG, agent_sys="nanobot", timeout_seconds=900, max_total_seconds=900)
    return start(root, "-n", str(workers), "--model=script", "--uniclaw-infra-retries=0")


def ready(session: Session, engine: docker.DockerClient) -> dict[Process, str]:
    """Wait until turns run in containers; return the processes of the session."""
    names = ("01_sleeper", "02_hanger") if "2" in session.arguments else ("01_sleeper",)
    session.wait_for_turns(*names)
    found = remains(engine, session.run.name, {})
    assert len(found.containers) == len(names)
    assert found.networks
    processes = process_tree(session.process.pid)
    commands = "\n".join(processes.values())
    assert "sandbox.reaper" in commands
    assert "pytest_uniclaw.models" in commands
    assert sum("import sys;exec(eval(sys.stdin.readline()))" in c for c in processes.values()) == 2 * len(names) - 2
    return processes


def remains(engine: docker.DockerClient, run: str, processes: dict[Process, str]) -> Remains:
    """Return what of a run there still is."""
    label = {"label": f"uniclaw.run={run}"}
    return Remains(
        containers=tuple(c["Id"] for c in engine.api.containers(all=True, filters=label)),
        networks=tuple(n["Name"] for n in engine.api.networks(filters=label)),
        volumes=tuple(v["Name"] for v in engine.api.volumes(filters=label)["Volumes"] or ()),
        folders=tuple(Path(tempfile.gettempdir()).glob(f"{scratch_prefix(run)}*")),
        processes=tuple(command for process, command in processes.items() if alive(process)),
    )


def expect_nothing(running: Running, engine: docker.DockerClient) -> None:
    """Fail unless nothing is left in time; the last look is taken when that is over, however late that comes."""
    session = running.session
    while True:
        late = time.monotonic() - running.ended > GONE_SECONDS
        session.process.poll()
        left = remains(engine, session.run.name, running.processes)
        if not left:
            print(f"all gone after {time.monotonic() - running.ended:.1f} s")
            return
        assert not late, f"left after {GONE_SECONDS:g} s: {left}\n{session.output[-3000:]}"
        time.sleep(0.1)


@pytest.mark.parametrize("way", SUDDEN, ids=lambda way: way.label)
def test_a_session_that_dies(way: Way, running: dict[str, Running], engine: docker.DockerClient) -> None:
    expect_nothing(running[way.label], engine)
    assert running[way.label].session.process.wait(1) == way.code


@pytest.mark.parametrize("way", ACTING, ids=lambda way: way.label)
def test_a_session_that_is_interrupted(way: Way, running: dict[str, Running], engine: docker.DockerClient) -> None:
    session = running[way.label].session
    running[way.label].end(way)
    expect_nothing(running[way.label], engine)
    assert session.process.wait(1) == way.code, session.output[-3000:]


def test_a_worker_that_exits_costs_its_item_only(tmp_path: Path, engine: docker.DockerClient) -> None:
    suite = Suite.make(tmp_path / "suite", conftest=EXIT_ON_REQUEST)
    suite.add("01_sleeper", SLEEP, timeout_seconds=900, max_total_seconds=900)
    suite.add("02_other")
    suite.add("03_later")
    session = start(suite.root, "-n", "2", "--attempts=2", "-k", "not sleeper or [2]", "--html=report.html")
    session.wait_for_turns("01_sleeper")
    assert of_sleeper(engine, session)
    running = Running(session, process_tree(session.process.pid))
    exit_at_once(session)
    wait_until(lambda: not of_sleeper(engine, session), GONE_SECONDS, "the dead worker's container is removed")
    session.finish()
    running.ended = time.monotonic()
    expect_nothing(running, engine)
    assert session.code == pytest.ExitCode.TESTS_FAILED, session.output
    sleeper = session.cases["01_sleeper"]
    assert (sleeper.outcome, sleeper.status, sleeper.properties["number"]) == ("error", "infra_error", "2")
    assert "worker" in sleeper.message
    assert [session.cases[name].outcome for name in ("02_other", "03_later")] == ["passed", "passed"]
    assert "4/5 passed, 1 infra, coverage 4/5" in session.output, session.output
    assert "task_101_01_sleeper" in (suite.root / "report.html").read_text("utf-8")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_session_ends_with_its_gateway(workers: int, tmp_path: Path, engine: docker.DockerClient) -> None:
    suite = Suite.make(tmp_path / "suite")
    names = [f"{number:02}_hanger" for number in range(1, 6)]
    for name in names:
        suite.add(name, script=HANG, agent_sys="nanobot", timeout_seconds=900, max_total_seconds=900)
    session = start(suite.root, "-n", str(workers), "--model=script", "--uniclaw-infra-retries=0")
    session.wait_for_turns(names[0])
    tree = process_tree(session.process.pid)
    (gateway,) = [pid for (pid, _), command in tree.items() if "pytest_uniclaw.models" in command]
    os.kill(gateway, signal.SIGKILL)
    session.finish()
    ran = len(session.cases)
    assert session.code == pytest.ExitCode.INTERRUPTED, session.output
    assert "the model gateway has ended (Connection refused); its log: " in session.output
    assert {case.status for case in session.cases.values()} == {"infra_error"}
    assert 1 <= ran < len(names)
    assert f"NOT RUN: {len(names) - ran} of {len(names)}" in session.output
    expect_nothing(Running(session, tree, time.monotonic()), engine)


def of_sleeper(engine: docker.DockerClient, session: Session) -> list[object]:
    listed = engine.api.containers(all=True, filters={"label": f"uniclaw.run={session.run.name}"})
    return [c for c in listed if "sleeper" in c["Labels"]["uniclaw.attempt"]]
