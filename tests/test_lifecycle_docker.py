"""However a session ends, nothing of it is left after ten seconds (design.md invariant 7).

All sessions start at once and run into a turn that would last for minutes; each test then ends one of them in its own
way, while a turn runs, and looks for what it left: containers, networks and volumes by the run's label, processes by
the tree below the controller.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.packages import Suite
from support.sessions import Session, alive, process_tree, start, wait_until

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
    end: Callable[[Session], None]
    code: int


WAYS = (
    Way("SIGINT to the controller", to_controller(signal.SIGINT), pytest.ExitCode.INTERRUPTED),
    Way("SIGINT to the group", to_group(signal.SIGINT), pytest.ExitCode.INTERRUPTED),
    Way("SIGTERM to the controller", to_controller(signal.SIGTERM), pytest.ExitCode.INTERRUPTED),
    Way("SIGKILL of the controller", to_controller(signal.SIGKILL), -signal.SIGKILL),
    Way("SIGKILL of the group", to_group(signal.SIGKILL), -signal.SIGKILL),
)
ALONE = (*WAYS, Way("os._exit", exit_at_once, 9))


@dataclass(frozen=True)
class Remains:
    """What is left of a run."""

    containers: tuple[str, ...]
    networks: tuple[str, ...]
    volumes: tuple[str, ...]
    processes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.containers or self.networks or self.volumes or self.processes)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Every session that is going to be ended, started; whoever needs one waits for its turns."""
    root = tmp_path_factory.mktemp("lifecycle")
    started = {}
    for workers, ways in ((0, ALONE), (2, WAYS)):
        for way in ways:
            name = f"{way.name} -n {workers}"
            started[name] = begin(root / name.replace(" ", "-").replace(".", "-"), workers)
    yield started
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


def remains(engine: docker.DockerClient, run: str, processes: dict[tuple[int, int], str]) -> Remains:
    """Return what of a run there still is."""
    label = {"label": f"uniclaw.run={run}"}
    return Remains(
        containers=tuple(c["Id"] for c in engine.api.containers(all=True, filters=label)),
        networks=tuple(n["Name"] for n in engine.api.networks(filters=label)),
        volumes=tuple(v["Name"] for v in engine.api.volumes(filters=label)["Volumes"] or ()),
        processes=tuple(command for process, command in processes.items() if alive(process)),
    )


def ready(session: Session, engine: docker.DockerClient, *names: str) -> dict[tuple[int, int], str]:
    """Wait until turns run in containers; return the processes of the session."""
    session.wait_for_turns(*names)
    found = remains(engine, session.run.name, {})
    assert len(found.containers) == len(names)
    assert found.networks
    processes = process_tree(session.process.pid)
    for part in ("sandbox.reaper", "pytest_uniclaw.models"):
        assert any(part in command for command in processes.values()), processes
    return processes


def expect_nothing(session: Session, engine: docker.DockerClient, processes: dict[tuple[int, int], str]) -> None:
    """Fail unless nothing is left in time."""
    began = time.monotonic()
    left = remains(engine, session.run.name, processes)
    while left and time.monotonic() - began < GONE_SECONDS:
        session.process.poll()
        time.sleep(0.1)
        left = remains(engine, session.run.name, processes)
    assert not left, f"left after {GONE_SECONDS:g} s: {left}\n{session.output[-3000:]}"
    print(f"all gone after {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("way", ALONE, ids=lambda way: way.name)
def test_without_workers(way: Way, sessions: dict[str, Session], engine: docker.DockerClient) -> None:
    session = sessions[f"{way.name} -n 0"]
    processes = ready(session, engine, "01_sleeper")
    way.end(session)
    expect_nothing(session, engine, processes)
    assert session.process.wait(1) == way.code, session.output[-3000:]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_with_workers(way: Way, sessions: dict[str, Session], engine: docker.DockerClient) -> None:
    session = sessions[f"{way.name} -n 2"]
    processes = ready(session, engine, "01_sleeper", "02_hanger")
    assert sum("uniclaw" not in command and "-c" in command for command in processes.values()) >= 2, processes
    way.end(session)
    expect_nothing(session, engine, processes)
    assert session.process.wait(1) == way.code, session.output[-3000:]


def test_a_worker_that_exits_costs_its_item_only(tmp_path: Path, engine: docker.DockerClient) -> None:
    suite = Suite.make(tmp_path / "suite", conftest=EXIT_ON_REQUEST)
    suite.add("01_sleeper", SLEEP, timeout_seconds=900, max_total_seconds=900)
    suite.add("02_other")
    suite.add("03_later")
    session = start(suite.root, "-n", "2", "--attempts=2", "-k", "not sleeper or [2]", "--html=report.html")
    session.wait_for_turns("01_sleeper")
    sleeping = engine.containers.list(filters={"label": f"uniclaw.run={session.run.name}"})
    assert any("sleeper" in container.labels["uniclaw.attempt"] for container in sleeping)
    processes = process_tree(session.process.pid)
    exit_at_once(session)
    wait_until(lambda: not of_sleeper(engine, session), GONE_SECONDS, "the dead worker's container is removed")
    session.finish()
    assert session.code == pytest.ExitCode.TESTS_FAILED, session.output
    expect_nothing(session, engine, processes)
    assert session.cases["01_sleeper"].outcome == "error", session.output
    assert session.cases["01_sleeper"].status == "infra_error"
    assert session.cases["01_sleeper"].properties["number"] == "2"
    assert "worker" in session.cases["01_sleeper"].message
    assert [session.cases[name].outcome for name in ("02_other", "03_later")] == ["passed", "passed"]
    assert "4/5 passed, 1 infra, coverage 4/5" in session.output, session.output
    assert "task_101_01_sleeper" in (suite.root / "report.html").read_text("utf-8")


def of_sleeper(engine: docker.DockerClient, session: Session) -> list[object]:
    listed = engine.api.containers(all=True, filters={"label": f"uniclaw.run={session.run.name}"})
    return [c for c in listed if "sleeper" in c["Labels"]["uniclaw.attempt"]]
