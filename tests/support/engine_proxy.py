"""A Unix socket in front of the container engine that a test can cut, so that the engine itself is left alone."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType

ENGINE = "/var/run/docker.sock"


class EngineProxy:
    """Passes every connection on to the engine until :meth:`cut`; :meth:`mend` lets new ones through again."""

    def __init__(self, engine: str = ENGINE) -> None:
        self._engine = engine
        self._folder = Path(tempfile.mkdtemp(prefix="proxy-"))  # short: a socket's path has 108 bytes at most
        self._path = self._folder / "engine.sock"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What makes a client use the proxy."""
        return {"DOCKER_HOST": f"unix://{self._path}"}

    def __enter__(self) -> EngineProxy:
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        shutil.rmtree(self._folder)

    def mend(self) -> None:
        """Listen."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and break every open one."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self._path.unlink()
        with self._lock:
            for end in self._open:
                _shut(end)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(self._engine)
            with self._lock:
                self._open |= {client, engine}
            both = threading.Barrier(2, action=lambda pair=(client, engine): self._close(*pair))
            for ends in ((client, engine), (engine, client)):
                threading.Thread(target=_copy, args=(*ends, both), daemon=True).start()

    def _close(self, *ends: socket.socket) -> None:
        with self._lock:
            for end in ends:
                self._open.discard(end)
                end.close()


def _copy(source: socket.socket, target: socket.socket, both: threading.Barrier) -> None:
    """Copy one direction to its end, pass the end on, and let whichever direction is last close both."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _shut(source)
        _shut(target)
    both.wait()


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
