"""A TCP port on loopback that leads to a Unix socket, for agents that only speak TCP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class _Relay(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    path: Path


class _Handler(socketserver.BaseRequestHandler):
    server: _Relay

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as far:
            far.connect(str(self.server.path))
            back = threading.Thread(target=_copy, args=(far, self.request), daemon=True)
            back.start()
            _copy(self.request, far)
            back.join()


@contextmanager
def relayed(path: Path) -> Iterator[int]:
    """Yield the port."""
    with _Relay(("127.0.0.1", 0), _Handler) as server:
        server.path = path
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(5)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
