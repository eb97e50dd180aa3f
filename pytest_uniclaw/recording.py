"""The recording of an attempt's screen: one fragmented mp4 from before the first turn to the end of the last.

It is made by an account that the executor is not, and is bounded in size and time. An executor without root can neither
stop the recorder nor change its file, but it can end the screen, and with that the film, or show another picture on it.
A root executor can do all of that and put anything in the file's place. A film that was not recorded to the end is
flagged, and what is no film is not kept. Whatever goes wrong never touches the attempt or its grading.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.desktop import DISPLAY, HEIGHT, WIDTH
from pytest_uniclaw.errors import InfraError, SandboxLost
from pytest_uniclaw.sandbox.base import MIB, CollectLimits, Sandbox

RECORDING, FAST = "recording.mp4", "recording-16x.mp4"
"""The files in the attempt's folder: the screen in its own time, and sixteen times as fast."""
RECORDING_FAILED = "recording_failed"
"""Flag: there is no recording, or not the whole of it."""
RECORDING_WITHHELD = "recording_withheld"
"""Flag: the task has no desktop, or it has privacy values, and a picture cannot be redacted."""
MOST_BYTES = 256 * MIB
START_SECONDS = 30.0
STOP_SECONDS = 40.0
COLLECT_SECONDS = 120.0

_PRELUDE = """
as_nobody() { exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
folder=$1; shift
"""
_START = f"""{_PRELUDE}
mkdir -p -m 700 "$folder" && chown 65534:65534 "$folder" && cd "$folder" || exit
as_nobody setsid ffmpeg -nostats -loglevel error -y "$@" {RECORDING} > log 2>&1 < /dev/null &
pid=$!
until [ -s {RECORDING} ]; do
    kill -0 "$pid" 2> /dev/null && [ "$SECONDS" -lt 20 ] || {{ tail -c 500 log; exit 1; }}
    sleep 0.05
done
echo "$pid" > pid
"""
"""Not with -nostdin: then ffmpeg would not look whether it has been interrupted while it waits for the screen."""
_STOP = f"""{_PRELUDE}
cd "$folder" && pid=$(cat pid) || exit
early=0
[ "$(stat -c %u "/proc/$pid" 2> /dev/null)" = 65534 ] && kill -INT "$pid" 2> /dev/null || early=1
while [ $early = 0 ] && kill -0 "$pid" 2> /dev/null; do
    [ "$SECONDS" -lt 12 ] || {{ kill -KILL "$pid"; exit 1; }}
    sleep 0.05
done
(as_nobody timeout 15 ffmpeg -nostdin -nostats -loglevel error -y -itsscale 0.0625 -i {RECORDING} -c copy {FAST}) \\
    >> log 2>&1 || rm -f {FAST}
exit $early
"""
"""A recorder that is not there any more, because a bound was reached or the screen ended, filmed less than there was.

The second film has the first one's frames with other times, which costs next to nothing.
"""


@dataclass(frozen=True)
class Quality:
    """Frames per second, width in pixels (the height follows) and x264's constant rate factor, lower is better."""

    frames: int
    width: int
    factor: int


QUALITIES = {"low": Quality(5, 1280, 30), "high": Quality(10, WIDTH, 25)}
"""What the task's ``recording`` says; frames and sizes are upstream's, but the whole screen is in the picture."""


def arguments(quality: Quality, seconds: float) -> list[str]:
    """Return ffmpeg's arguments before the file: the screen, at most ``seconds`` of it, as a file that may be cut."""
    return [
        "-f", "x11grab", "-draw_mouse", "1", "-video_size", f"{WIDTH}x{HEIGHT}", "-framerate", str(quality.frames),
        "-i", DISPLAY, "-t", f"{seconds:.0f}", "-fs", str(MOST_BYTES), "-vf", f"scale={quality.width}:-2",
        "-c:v", "libx264", "-preset", "ultrafast", "-crf", str(quality.factor), "-pix_fmt", "yuv420p", "-threads", "1",
        "-g", str(5 * quality.frames), "-movflags", "+frag_keyframe+empty_moov+default_base_moof",
        "-flush_packets", "1",
    ]  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """A recording that runs in a sandbox."""

    sandbox: Sandbox

    @property
    def folder(self) -> str:
        """Where the sandbox keeps it; no executor but root can write there."""
        return f"{self.sandbox.paths.private}/recording"

    def finish(self, directory: Path) -> list[str]:
        """Stop it and bring it out as ``recording.mp4``; return flags. Never raises a declared error.

        What a dead sandbox recorded is brought out too, as far as it came.
        """
        flags = []
        try:
            stopped = self.sandbox.run(["bash", "-c", _STOP, "stop", self.folder], cwd="/", seconds=STOP_SECONDS)
            flags = [RECORDING_FAILED] * (stopped.exit_code != 0)
        except (InfraError, SandboxLost):
            flags = [RECORDING_FAILED]
        return flags if self._bring_out(directory) else [RECORDING_FAILED]

    def _bring_out(self, directory: Path) -> bool:
        """Copy the films to the attempt's folder; whether there is the first."""
        scratch = directory / ".recording"
        limits = CollectLimits(2 * MOST_BYTES, 2 * MOST_BYTES, files=10, seconds=COLLECT_SECONDS)
        try:
            self.sandbox.collect({self.folder: scratch}, limits)
            if not is_film(scratch / RECORDING):
                return False
            (scratch / RECORDING).replace(directory / RECORDING)
            if is_film(scratch / FAST):
                (scratch / FAST).replace(directory / FAST)
        except (InfraError, SandboxLost, OSError):
            return False
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return True


def is_film(path: Path) -> bool:
    """Tell whether a path is a regular file that begins like an mp4. Raises OSError."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(8)[4:] == b"ftyp"


def start_recording(sandbox: Sandbox, quality: Quality, seconds: float) -> Recording | None:
    """Start recording for at most ``seconds``; None when it does not start, which is no error of the attempt's."""
    recording = Recording(sandbox)
    command = ["bash", "-c", _START, "record", recording.folder, *arguments(quality, seconds)]
    try:
        done = sandbox.run(command, cwd="/", seconds=START_SECONDS)
    except InfraError:
        return None
    return recording if done.exit_code == 0 else None
