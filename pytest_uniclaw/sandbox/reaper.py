"""Nothing is left behind: removal by labels, and a process that does it however its owner dies (invariant 7).

Run as ``python -m pytest_uniclaw.sandbox.reaper RUN [--base-url URL]``, it reads its standard input to the end, which
comes when the owner closes it or dies, and then removes every container, network, volume and scratch folder of the run.
"""

from __future__ import annotations

import argparse
import glob
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.paths import scratch_prefix

if TYPE_CHECKING:
    from docker import APIClient

REAP_SECONDS = 6.0
"""Workers that outlive the owner may still be creating; the run is looked at again for this long."""
FAREWELL = b"closed"
"""What an owner that ends in good order says; one that dies says nothing."""
CLOSE_SECONDS = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """How many things of each kind a removal found; ``failed`` were found and are still there."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """Everything found."""
        return self.containers + self.networks + self.volumes


def remove_owned(run: str, worker: str | None = None, base_url: str | None = None) -> Found:
    """Remove what belongs to a run, or only to one of its workers. Raises EngineError when no engine answers."""
    wanted = ["uniclaw=1", f"uniclaw.run={run}", *([f"uniclaw.worker={worker}"] if worker is not None else [])]
    return remove_labelled(wanted, lambda labels: True, base_url)


def sweep_expired(base_url: str | None = None) -> Found:
    """Remove leftovers of anyone's whose deadline has passed (the host was switched off, say). Raises EngineError."""
    return remove_labelled(["uniclaw=1"], expired, base_url)


def expired(labels: dict[str, str]) -> bool:
    """Tell whether a deadline label lies in the past; without a readable one nothing is ever expired."""
    with suppress(ValueError):
        return float(labels.get("uniclaw.deadline", "inf")) < time.time()
    return False


def remove_labelled(wanted: list[str], condition: Callable[[dict[str, str]], bool], base_url: str | None) -> Found:
    """Remove the containers, then the networks and volumes, that carry the labels and meet the condition."""
    from pytest_uniclaw.sandbox.engine import calls, connected

    with connected(base_url) as api, calls("list what is left over"):
        filters = {"label": wanted}
        containers = [c["Id"] for c in api.containers(all=True, filters=filters) if condition(c["Labels"] or {})]
        failed = sum(not removed(api.remove_container, key, force=True, v=True) for key in containers)
        networks = [n["Id"] for n in api.networks(filters=filters) if condition(n["Labels"] or {})]
        failed += sum(not removed_network(api, key) for key in networks)
        listed: list[dict[str, Any]] = api.volumes(filters=filters)["Volumes"] or []
        volumes = [v["Name"] for v in listed if condition(v["Labels"] or {})]
        failed += sum(not removed(api.remove_volume, key, force=True) for key in volumes)
    return Found(len(containers), len(networks), len(volumes), failed)


def removed(remove: Callable[..., object], key: str, **options: bool) -> bool:
    """Remove one thing; True when it is gone, whoever removed it."""
    from pytest_uniclaw.sandbox.engine import explain, failures, is_missing

    try:
        remove(key, **options)
    except failures() as error:
        if is_missing(error):
            return True
        log.warning("could not remove %s: %s", key, explain(error))
        return False
    return True


def removed_network(api: APIClient, key: str) -> bool:
    """Remove a network. One that is in use stays, and is found again by the next look."""
    return removed(api.remove_network, key)


def remove_scratch(run: str) -> None:
    """Remove the private copies of packages that a process of the run left in the temporary folder when it died."""
    for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(scratch_prefix(run))}*"):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class ReaperProcess:
    """A running reaper. It acts when :meth:`close` is called or its owner dies, whichever comes first."""

    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """Let it remove what is left of the run, and wait for that, at most 15 seconds.

        Call it after the run's workers have ended: it says that nothing is created any more, so one look is enough.
        """
        if self.process.stdin and not self.process.stdin.closed:
            with suppress(OSError):
                self.process.stdin.write(FAREWELL)
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSE_SECONDS)


def start_reaper(run: str, base_url: str | None = None) -> ReaperProcess:
    """Start the reaper of a run, in a session of its own so that no signal to its owner's group reaches it."""
    # -P and the appended folder: neither a file of the current folder nor a missing installation may stop it.
    code = f"import sys; sys.path.append(sys.argv.pop(1)); from {__name__} import main; sys.exit(main(sys.argv[1:]))"
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-c", code, root, run, *(["--base-url", base_url] if base_url else [])]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    return ReaperProcess(process)


def reap(run: str, base_url: str | None, *, orderly: bool, seconds: float = REAP_SECONDS) -> int:
    """Remove the run's things and return the exit status, 0 when the last look removed all it found.

    After an orderly end one clean look is enough; otherwise it looks again until the time is over.
    """
    end = time.monotonic() + seconds
    while True:
        clean = False
        remove_scratch(run)
        with suppress(EngineError):
            clean = remove_owned(run, base_url=base_url).failed == 0
        if (orderly and clean) or time.monotonic() >= end:
            return 0 if clean else 1
        time.sleep(0.25)


def main(arguments: list[str]) -> int:
    """Wait for the end of standard input, then reap."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="python -m pytest_uniclaw.sandbox.reaper")
    parser.add_argument("run", help="the run whose containers, networks and volumes are removed")
    parser.add_argument("--base-url", help="the engine's address")
    options = parser.parse_args(arguments)
    farewell = sys.stdin.buffer.read()
    return reap(options.run, options.base_url, orderly=farewell == FAREWELL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
