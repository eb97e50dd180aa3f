"""The container engine: one client, one container handle, and the rule that tells a lost engine from a lost container.

Nothing here imports the Docker SDK before it is used, so that a session which needs no container never pays for it.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.errors import EngineError, SandboxLost
from pytest_uniclaw.sandbox import cgroup
from pytest_uniclaw.settings import environment_value

if TYPE_CHECKING:
    from docker import APIClient

ANSWER_SECONDS = 60.0
"""An engine that does not answer one request for this long is lost."""
KILLED = 128 + 9
REMOVAL_SECONDS = 1.0
"""An engine that is told to remove a running container kills it first, and has removed it within this."""
_VERSIONS: dict[str, str] = {}
"""The API version of each engine that has answered, by address: to say it, an engine runs three programs each time."""

log = logging.getLogger(__name__)


def failures() -> tuple[type[Exception], ...]:
    """Return every exception that a call to the engine can end with."""
    from http.client import HTTPException

    from docker.errors import DockerException
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    return DockerException, RequestException, HTTPError, HTTPException, OSError


def is_missing(error: Exception) -> bool:
    """Tell whether the engine answered that the thing asked for does not exist."""
    from docker.errors import NotFound

    return isinstance(error, NotFound)


@contextmanager
def calls(what: str) -> Iterator[None]:
    """Turn every failure of the engine inside the block into an :class:`EngineError` that says what was tried."""
    try:
        yield
    except failures() as error:
        raise EngineError(f"the container engine could not {what}: {explain(error)}") from error


@contextmanager
def connected(base_url: str | None) -> Iterator[APIClient]:
    """Yield a client of the engine at ``base_url``, by default the one the docker command would use here.

    Raises:
        EngineError: no engine answers there.
    """
    with calls("be reached (is it running, and may this user use its socket?)"):
        client = connect(base_url)
    with closing(client):
        yield client


def connect(base_url: str | None) -> APIClient:
    """Return a client of the engine at ``base_url``, None for the one that :func:`endpoint` names."""
    from docker import APIClient

    settings = {"base_url": base_url} if base_url else endpoint()
    address = settings["base_url"]
    knock(address)
    client = APIClient(version=_VERSIONS.get(address, "auto"), timeout=int(ANSWER_SECONDS), **settings)
    _VERSIONS[address] = client.api_version
    return client


def endpoint() -> dict[str, Any]:
    """Return the address and TLS settings of the engine that the docker command would use here.

    ``DOCKER_HOST`` and its TLS companions name it, else the context in ``DOCKER_CONTEXT``, else the current context.
    Raises DockerException for a context that is not there or names no engine.
    """
    from docker.context import ContextAPI
    from docker.errors import ContextNotFound
    from docker.utils import kwargs_from_env

    settings = dict(kwargs_from_env())
    if settings.get("base_url"):
        return settings
    name = environment_value("DOCKER_CONTEXT")
    context = ContextAPI.get_context(name)
    if context is None or not context.Host:
        raise ContextNotFound(name or "the current one")
    return {"base_url": context.Host, **({"tls": context.TLSConfig} if context.TLSConfig else {})}


def named_elsewhere() -> bool:
    """Tell whether ``DOCKER_HOST`` or a docker context other than the default names the engine."""
    from docker.context import ContextAPI
    from docker.utils import kwargs_from_env

    context = ContextAPI.get_context(environment_value("DOCKER_CONTEXT"))
    return bool(kwargs_from_env().get("base_url")) or context is None or context.name != "default"


def knock(base_url: str) -> None:
    """Connect to a Unix socket once and close it: the SDK leaves its own open when nobody answers. Raises OSError."""
    scheme, _, path = base_url.partition("://")
    if scheme in ("unix", "http+unix"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(ANSWER_SECONDS)
            probe.connect("/" + path.lstrip("/"))


def explain(error: Exception) -> str:
    """Return the engine's own words on one line, without the address it was asked at."""
    text = getattr(error, "explanation", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:500]


def address(api: APIClient, path: str) -> str:
    """Return the URL of an engine endpoint, for the two that the SDK wraps too tightly."""
    return f"{api.base_url}/v{api.api_version}{path}"


@dataclass
class Container:
    """A container by a name that is chosen before it exists, so that a half-made one can be removed too."""

    api: APIClient
    name: str
    retained: bool = False

    @contextmanager
    def calls(self, what: str) -> Iterator[None]:
        """Turn a failed call into :class:`SandboxLost` when the engine answers and the container is dead.

        Otherwise it becomes an :class:`EngineError`.
        """
        try:
            yield
        except failures() as error:
            raise self.diagnose(what, error) from error

    def diagnose(self, what: str, error: Exception) -> EngineError | SandboxLost:
        """Decide from the engine's answer and the kernel's counters, never from the error's wording."""
        try:
            lost = self.death()
        except EngineError as silent:
            return silent
        return lost or EngineError(f"the container engine could not {what}: {explain(error)}")

    def state(self) -> Mapping[str, Any] | None:
        """Return the engine's record of the container, None when there is none. Raises EngineError."""
        try:
            record: Mapping[str, Any] = self.api.inspect_container(self.name)
        except failures() as error:
            if is_missing(error):
                return None
            raise EngineError(f"the container engine does not answer: {explain(error)}") from error
        return record

    def death(self) -> SandboxLost | None:
        """Return why the container is no longer running, None while it is.

        Raises EngineError when the engine does not answer or has no such container: nobody inside can remove it.
        """
        record = self._settled_state()
        if record is None:
            raise EngineError("the sandbox was removed from outside while in use")
        state = record["State"]
        if state["Running"]:
            return None
        code = state["ExitCode"]
        if self.out_of_memory(record):
            return SandboxLost(f"the sandbox ran out of memory and ended (exit status {code})", cause="oom")
        cause = "killed" if code > 128 else "exited"
        return SandboxLost(f"the sandbox ended while in use (exit status {code})", cause=cause)

    def _settled_state(self) -> Mapping[str, Any] | None:
        """Return the engine's record; of a container that was killed, once it would have been removed."""
        end = time.monotonic() + REMOVAL_SECONDS
        while (record := self.state()) and was_killed(record) and time.monotonic() < end:
            time.sleep(0.1)
        return record

    def out_of_memory(self, record: Mapping[str, Any]) -> bool:
        """Tell whether the kernel killed a process of the container for memory. Raises EngineError."""
        state = record["State"]
        if state["OOMKilled"]:
            return True
        kills = cgroup.oom_kills(record["Id"], state["Pid"])
        if kills is not None:
            return kills > 0
        with calls("list its events"):
            return self.had_event("oom", since=record["Created"])

    def had_event(self, event: str, since: str) -> bool:
        """Tell whether the engine still remembers such an event of this container (it keeps a few hundred in all)."""
        from datetime import UTC, datetime

        begin = datetime.fromisoformat(since[:19]).replace(tzinfo=UTC)
        wanted = {"container": self.name, "event": event}
        found = self.api.events(since=begin, until=datetime.now(UTC), filters=wanted, decode=True)
        return next(iter(found), None) is not None

    def remove(self) -> None:
        """Remove the container by force. Never raises: what is left is found by its labels (the reaper)."""
        try:
            self.api.remove_container(self.name, force=True, v=True)
        except failures() as error:
            if not is_missing(error):
                log.warning("could not remove %s, the reaper will: %s", self.name, explain(error))


def was_killed(record: Mapping[str, Any]) -> bool:
    """Tell from the engine's record whether a container ended by SIGKILL."""
    return not record["State"]["Running"] and record["State"]["ExitCode"] == KILLED


def new_name(run: str) -> str:
    """Return a container name that nothing else uses."""
    safe = "".join(character for character in run if character.isalnum() or character in "-_.")
    return f"uniclaw-{safe[:40]}-{secrets.token_hex(6)}"


def image_reference(image: str) -> str:
    """Return what the engine calls an image: a reference as it stands, or the tag of one of our own images."""
    if ":" in image or "/" in image:
        return image
    from pytest_uniclaw.sandbox.images import image_tag

    return image_tag(image)


@contextmanager
def removed_at_end(container: Container) -> Iterator[Container]:
    """Yield the handle and remove the container whatever happens, also when its creation broke off half-way.

    A container that was marked ``retained`` meanwhile is left.
    """
    try:
        yield container
    finally:
        if not container.retained:
            with suppress(OSError):
                container.remove()


__all__ = [
    "ANSWER_SECONDS", "Container", "address", "calls", "connect", "connected", "endpoint", "explain", "failures",
    "image_reference", "is_missing", "named_elsewhere", "new_name", "removed_at_end",
]
