"""``media_info`` and ``media_frame``: what an audio or video file is, and one picture of a video, by ffmpeg.

Only formats that hold their own data are opened: a playlist could name other files.
"""

from __future__ import annotations

from .common import Answer, Arguments, ToolError, shortened
from .pictures import SIDE, image
from .places import Found, Root
from .programs import run_program

FORMATS = "aac,aiff,amr,asf,au,avi,caf,flac,flv,gif,matroska,mov,mp3,mpeg,mpegts,ogg,wav,webm,wv"
INFO_CHARACTERS = 8000


def media_info(root: Root, arguments: Arguments) -> Answer:
    """Tell container, duration, streams and tags of an audio or video file, in ffmpeg's words."""
    found = root.file(arguments.text("path"))
    options = ["-map", "0", "-c", "copy", "-t", "0", "-f", "null", "-"]
    said = b"".join(run_program([*opening(found), *options], "read it", merged=True)).decode("utf-8", "replace")
    lines = [line.strip() for line in said.partition("\nStream mapping:")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(("[", "Input #0"))]
    text = shortened("\n".join(kept), INFO_CHARACTERS)
    return Answer(f"[{found.name}: {found.size} bytes]\n{text}")


def media_frame(root: Root, arguments: Arguments) -> Answer:
    """Show the picture of a video at a time, given in seconds from its start."""
    found = root.file(arguments.text("path"))
    seconds = arguments.number("seconds")
    if seconds < 0:
        raise ToolError("seconds must be 0 or more")
    scale = f"scale='min({SIDE},iw)':'min({SIDE},ih)':force_original_aspect_ratio=decrease"
    before = opening(found, ["-ss", f"{seconds:.3f}"])
    options = ["-frames:v", "1", "-vf", scale, "-c:v", "mjpeg", "-q:v", "3", "-f", "image2pipe", "-"]
    data = b"".join(run_program([*before, *options], "show a frame"))
    if not data:
        raise ToolError(f"{found.name}: has no picture at {seconds:g} s; media_info tells how long it is")
    return Answer(f"[{found.name}: the frame at {seconds:g} s]", images=[image("image/jpeg", data)])


def opening(found: Found, before: list[str] | None = None) -> list[str]:
    """Return the part of the command that opens a file."""
    limits = ["-format_whitelist", FORMATS, "-protocol_whitelist", "file"]
    quiet = ["ffmpeg", "-hide_banner", "-nostdin", "-threads", "1"]
    return [*quiet, *(before or []), *limits, "-i", f"file:{found.path}"]
