"""The gateway for engines that cannot mount its socket: a volume, a small container and the engine's own connection.

Remote engines, and those in a virtual machine, do not share this host's sockets, so the agents' socket is made on the
engine's side: a container without network listens in a volume, which executors mount where the socket would be. What
agents send travels over the stream by which the relay's container is attached; nothing listens on this host, and no
address of it is reachable from a container (design invariant 6).
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.archive import pack
from pytest_uniclaw.sandbox.base import MIB, Entry
from pytest_uniclaw.sandbox.engine import (
    Container,
    calls,
    connected,
    failures,
    image_reference,
    new_name,
    removed_at_end,
)
from pytest_uniclaw.sandbox.provision import GATEWAY, limits, session_labels
from pytest_uniclaw.sandbox.relay_end import CHUNK, DATA, END, HEADER, OPEN
from pytest_uniclaw.sandbox.stream import Frames

if TYPE_CHECKING:
    from docker import APIClient

END_SCRIPT = "/opt/relay_end.py"
COMMAND = ("/usr/bin/python3", "-I", "-S", "-u", END_SCRIPT)
READY_SECONDS = 30.0
LIFETIME_SECONDS = 14 * 86400.0


def needs_relay(base_url: str | None = None) -> bool:
    """Tell whether this host's sockets cannot be mounted by the engine. Raises EngineError.

    An engine is elsewhere when it is reached over a network, ssh included, and in a virtual machine on every host that
    is not Linux, and where it is Docker Desktop's.
    """
    with connected(base_url) as api:
        if sys.platform != "linux" or not api.base_url.startswith("http+docker://local"):
            return True
        with calls("describe itself"):
            return "Docker Desktop" in str(api.info().get("OperatingSystem", ""))


@contextmanager
def relayed(run: str, agent_socket: Path, base_url: str | None = None, *, ended: Path | None = None) -> Iterator[str]:
    """Run a relay to ``agent_socket`` and yield the name of the volume that executors mount.

    ``ended`` is a file that is made when the relay ends before it is told to. Raises
    :class:`~pytest_uniclaw.errors.EngineError`; relay and volume are removed on the way out.
    """
    with ExitStack() as stack:
        api = stack.enter_context(connected(base_url))
        volume = _volume(api, run, stack)
        container = stack.enter_context(removed_at_end(Container(api, new_name(run))))
        stream = _started(container, volume, run, stack)
        carrier = _Carrier(stream, agent_socket, ended)
        stack.callback(carrier.close)
        threading.Thread(target=carrier.run, name="uniclaw-relay", daemon=True).start()
        if not carrier.ready.wait(READY_SECONDS) or carrier.lost:
            raise EngineError(f"the relay to the model gateway did not start within {READY_SECONDS:g} s")
        yield volume


def _volume(api: APIClient, run: str, stack: ExitStack) -> str:
    name = new_name(run)
    with calls("make the relay's volume"):
        api.create_volume(name, labels=session_labels(run, LIFETIME_SECONDS))

    def remove() -> None:
        with suppress(*failures()):  # what is left is found by its labels (the reaper)
            api.remove_volume(name, force=True)

    stack.callback(remove)
    return name


def _started(container: Container, volume: str, run: str, stack: ExitStack) -> socket.socket:
    """Create, fill, attach and start the relay's container; return the stream of its stdin and stdout."""
    api, image = container.api, image_reference("runtime")
    with calls(f"start a relay from the image {image} (`uniclaw images` builds ours)"):
        host = api.create_host_config(
            **limits(128 * MIB, 32, 16 * MIB),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            binds={volume: {"bind": GATEWAY, "mode": "rw"}},
        )
        host["LogConfig"] = {"Type": "none"}  # its output is frames, not a log
        api.create_container(
            image,
            name=container.name,
            entrypoint=list(COMMAND[:1]),
            command=list(COMMAND[1:]),
            user="0:0",
            stdin_open=True,
            labels=session_labels(run, LIFETIME_SECONDS),
            host_config=host,
        )
        source = Path(__file__).with_name("relay_end.py")
        with pack([Entry(END_SCRIPT, source=source)]) as archive:
            api.put_archive(container.name, "/", archive)
        attached = api.attach_socket(container.name, params={"stdin": 1, "stdout": 1, "stream": 1})
        for holder in (attached, getattr(attached, "_response", None)):  # each keeps the connection's descriptor open
            if holder is not None:
                stack.callback(holder.close)
        stream: socket.socket = getattr(attached, "_sock", attached)
        stream.settimeout(None)
        api.start(container.name)
    return stream


@dataclass
class _Carrier:
    """Carries frames between the attached stream and connections to the gateway's socket."""

    stream: socket.socket
    agent_socket: Path
    ended: Path | None = None
    closing: bool = False
    ready: threading.Event = field(default_factory=threading.Event)
    lost: bool = False
    _open: dict[int, socket.socket] = field(default_factory=dict)
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Take frames until the stream ends."""
        frames, held = Frames(), b""
        with suppress(OSError, ValueError):
            while data := self.stream.recv(CHUNK):
                held = self._take(held + frames.feed(data))
        self.lost = True
        if self.ended is not None and not self.closing:
            with suppress(OSError):  # the gateway's folder is gone: the session is over
                self.ended.touch()
        self.ready.set()
        for connection in list(self._open.values()):
            _shut(connection)

    def close(self) -> None:
        """End the relay on purpose."""
        self.closing = True
        _shut(self.stream)

    def _take(self, data: bytes) -> bytes:
        """Handle every whole frame; return the rest."""
        at = 0
        while len(data) - at >= HEADER.size:
            number, kind, size = HEADER.unpack_from(data, at)
            end = at + HEADER.size + size
            if len(data) < end:
                break
            self._handle(number, kind, data[at + HEADER.size : end])
            at = end
        return data[at:]

    def _handle(self, number: int, kind: int, payload: bytes) -> None:
        if number == 0:
            self.ready.set()
        elif kind == OPEN:
            self._connect(number)
        elif connection := self._open.get(number):
            with suppress(OSError):  # the gateway has closed: its own end is on the way back
                if kind == DATA:
                    connection.sendall(payload)
                else:
                    connection.shutdown(socket.SHUT_WR)

    def _connect(self, number: int) -> None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.agent_socket))
        except OSError:  # the gateway is gone: the agent sees its connection end
            connection.close()
            self._send(number, END)
            return
        self._open[number] = connection
        threading.Thread(target=self._answer, args=(number, connection), daemon=True).start()

    def _answer(self, number: int, connection: socket.socket) -> None:
        with suppress(OSError):
            while data := connection.recv(CHUNK):
                self._send(number, DATA, data)
        self._send(number, END)
        self._open.pop(number, None)
        connection.close()

    def _send(self, number: int, kind: int, data: bytes = b"") -> None:
        with self._sending, suppress(OSError):  # a stream that is gone is noticed by its reader
            self.stream.sendall(HEADER.pack(number, kind, len(data)) + data)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


__all__ = ["needs_relay", "relayed"]
