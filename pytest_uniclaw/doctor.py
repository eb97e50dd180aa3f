"""``uniclaw doctor``: is everything here that a run needs, and if not, what to do about it?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.errors import UniclawError
from pytest_uniclaw.extensions import load_provider
from pytest_uniclaw.settings import Settings

GIB = 1024**3
LEAST_DISK = 10 * GIB
LEAST_MEMORY = 4 * GIB
DEMO_IMAGES = ("runtime", "nanobot-0.1.5.post3", "grader")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``remedy`` is empty when it is good."""

    subject: str
    good: bool
    text: str
    remedy: str = ""


def examine(settings: Settings) -> list[Finding]:
    """Look at engine, images, models, disk and memory. Starts nothing and changes nothing."""
    return [*_engine(), *_models(settings), _disk(), _memory()]


def _engine() -> Iterator[Finding]:
    provider = load_provider("docker")
    try:
        provider.check(())
    except UniclawError as error:
        yield _bad("engine", error)
        return
    yield Finding("engine", True, "a Docker engine answers")
    for image in DEMO_IMAGES:
        try:
            provider.check((image,))
            yield Finding("image", True, f"{image} is built")
        except UniclawError as error:
            yield _bad("image", error)


def _bad(subject: str, error: UniclawError) -> Finding:
    text, _, remedy = str(error).partition("\n  fix: ")
    return Finding(subject, False, text, remedy)


def _models(settings: Settings) -> Iterator[Finding]:
    yield Finding("model", True, "the scripted model is built in (--model=script)")
    for provider in settings.providers:
        yield Finding("model", True, f"provider {provider.name} at {provider.base_url}")
    for variable in settings.missing_key_variables:
        yield Finding(
            "model", True, f"no key in {variable}: real models of that provider cannot be used", f"export {variable}=…"
        )


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / GIB:.1f} GiB free"
    return Finding(
        "disk", free >= LEAST_DISK, text, "" if free >= LEAST_DISK else "free 10 GiB; `uniclaw images prune` helps"
    )


def _memory() -> Finding:
    lines = Path("/proc/meminfo").read_text("ascii").splitlines() if Path("/proc/meminfo").is_file() else []
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    free = values.get("MemAvailable")
    if free is None:
        return Finding("memory", True, "unknown on this system")
    text = f"{free / GIB:.1f} GiB available"
    return Finding("memory", free >= LEAST_MEMORY, text, "" if free >= LEAST_MEMORY else "run with a smaller -n")
