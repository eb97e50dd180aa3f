"""The virtual desktop beside an executor: started before its services, looked at after each turn.

It runs as the executor's account and is part of the recorded service set, so that it outlives turns, sweeps and
freezes. What the harness sees of it, it looks at itself, as root, with a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SandboxLost
from pytest_uniclaw.sandbox.base import MIB, Completed, Sandbox
from pytest_uniclaw.sandbox.image_spec import on_desktop
from pytest_uniclaw.task import Task

WIDTH, HEIGHT = 1440, 900
DISPLAY = ":99"
BUS = "unix:path=/tmp/.uniclaw-bus"
START_SECONDS = 60.0
PROBE_SECONDS = 40.0
PROBE = "/opt/uniclaw/desktop/probe.py"
NO_SCREEN = 3
"""The probe's exit status when the screen cannot be reached or has no window manager."""
PROBE_FOLDER = "desktop"
"""Where the evidence's state keeps what the probe saw: ``state/desktop/{probe.json, screenshot.png}``."""
PROBE_FAILED = "desktop_probe_failed"
"""Flag: the screen could not be looked at after a turn, or not in time."""
DESKTOP_DIED = "desktop_died"
"""Flag: after a turn there is no window manager or no screen any more."""
EXTRA_MEMORY = 1024 * MIB
"""What screen, window manager and browser may take beside the agent, in bytes."""

_START = """
display=$1 size=$2 bus=$3 log=$4
exec > /dev/null 2>> "$log" < /dev/null
end=$((SECONDS + 40))
await() {
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "not in time: $*" >&2; exit 1; }
        sleep 0.02
    done
}
setsid Xvfb "$display" -screen 0 "${size}x24" -ac -nolisten tcp -noreset >> "$log" &
await xdpyinfo
rm -f "${bus#unix:path=}"
dbus-daemon --config-file=/opt/uniclaw/desktop/bus.conf --address="$bus" --fork --nopidfile || exit 1
setsid openbox --config-file /opt/uniclaw/desktop/openbox.xml >> "$log" &
setsid /usr/libexec/at-spi-bus-launcher --launch-immediately >> "$log" &
await wmctrl -m
await eval 'xprop -root AT_SPI_BUS | grep -q unix:'
chmod 711 ~/.cache ~/.cache/at-spi
"""
"""Runs as the executor. Each program has its session; the bus is there once its daemon has forked. Windows of services,
which have another account, may use screen and buses too."""
_LOG_END = ["bash", "-c", 'tail -c 1500 "$1" 2> /dev/null', "log-end"]


def image_for(image: str, task: Task) -> str:
    """Return the image that an agent with ``image`` runs a task in: the one with a desktop, where the task needs it."""
    return on_desktop(image) if task.gui or task.browser else image


def variables(task: Task) -> dict[str, str]:
    """Return what programs need in their environment to find the desktop, and whether a browser shows itself.

    Without a desktop a browser is headless, whatever the task says.
    """
    if not task.gui:
        return {"AGENT_BROWSER_HEADED": "false"} if task.browser else {}
    return {
        "DISPLAY": DISPLAY, "DBUS_SESSION_BUS_ADDRESS": BUS,
        "AGENT_BROWSER_HEADED": "true",
    }  # fmt: skip


def start_desktop(sandbox: Sandbox, environment: Mapping[str, str]) -> None:
    """Start screen, bus and window manager as the executor's account; return when they answer.

    Raises InfraError with the end of the log: an image without a desktop, or a screen that did not come up.
    """
    log = f"{sandbox.paths.home}/.desktop.log"
    command = ["bash", "-c", _START, "desktop", DISPLAY, f"{WIDTH}x{HEIGHT}", BUS, log]
    try:
        done = sandbox.run(
            command, user=sandbox.user, cwd=sandbox.paths.home, environment=environment, seconds=START_SECONDS
        )
        if done.ending is Ending.EXITED and done.exit_code == 0:
            return
        said = sandbox.run([*_LOG_END, log], user=sandbox.user)
    except SandboxLost as error:
        raise InfraError(f"the sandbox died while its desktop started: {error}") from error
    raise InfraError(f"the desktop did not start ({_how(done)}); its log ends:\n{_text(said)}")


def probe_folder(sandbox: Sandbox) -> str:
    """Return the folder in the sandbox that holds what :func:`look` saw; only root can write there."""
    return f"{sandbox.paths.private}/probe"


def look(sandbox: Sandbox, *, pictures: bool) -> list[str]:
    """Look at windows, processes and, with ``pictures``, at the screen; leave it in :func:`probe_folder`.

    Returns flags. A desktop that hangs or is gone costs the look, never the turn. Raises what the sandbox raises.
    """
    command = ["python3", "-I", PROBE, probe_folder(sandbox), DISPLAY, *["--pictures"] * pictures]
    done = sandbox.run(command, cwd="/", seconds=PROBE_SECONDS)
    if done.ending is Ending.EXITED and done.exit_code in {0, NO_SCREEN}:
        return [DESKTOP_DIED] * (done.exit_code == NO_SCREEN)
    return [PROBE_FAILED]


def _how(done: Completed) -> str:
    return f"exit status {done.exit_code}" if done.ending is Ending.EXITED else done.ending.value


def _text(done: Completed) -> str:
    return done.output.decode("utf-8", "replace").strip() or "nothing: the image may have no desktop"
