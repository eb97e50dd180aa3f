"""The open connections of the agents' socket: whoever opens many and says nothing must not lock the others out."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

from aiohttp import web

MAX_FILES = 65_536
"""Open files that the gateway asks for; a hard limit can be a billion, which no table should be made for."""
MAX_CONNECTIONS = 4096
"""Connections of all agents together: far more than their calls, for those are bounded by key (bounds.py)."""
HEADER_SECONDS = 20.0
"""What a new connection gets to send the header of its first request; clients that connect do so to ask at once."""


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems allow less than their hard limit
        return soft
    return wanted


class Connections:
    """The open connections of a site, at most ``limit``.

    One more closes the one that has been without a request for longest, never one whose request is in progress. A new
    connection that sends no whole header within ``seconds`` is closed.
    """

    def __init__(self, limit: int, seconds: float = HEADER_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        # Those without a request, longest first; new ones with the timer that closes them.
        self._idle: dict[web.RequestHandler, asyncio.TimerHandle | None] = {}
        self._busy: set[web.RequestHandler] = set()

    async def listen(self, runner: web.AppRunner, path: Path) -> asyncio.Server:
        """Serve a runner that is set up on a Unix socket. Its application needs :meth:`middleware` as the outermost."""
        server = runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        # The loop accepts so many at once, and a few times that before it has closed one: all beside the limit.
        backlog = max(1, min(128, self._limit // 8))
        return await loop.create_unix_server(lambda: _Watched(server(), self), path, backlog=backlog)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Note that a connection has a request in progress."""
        connection = request.protocol
        self._forget(connection)
        self._busy.add(connection)
        try:
            response: web.StreamResponse = await handler(request)
            return response
        finally:
            self._busy.discard(connection)
            if connection.connected:
                self._idle[connection] = None

    def opened(self, connection: web.RequestHandler) -> None:
        """A connection was made; it may be itself the one too many, when all others have requests."""
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(self._seconds, self._close, connection)
        if len(self._idle) + len(self._busy) > self._limit:
            self._close(next(iter(self._idle)))

    def lost(self, connection: web.RequestHandler) -> None:
        """A connection has ended."""
        self._busy.discard(connection)
        self._forget(connection)

    def _close(self, connection: web.RequestHandler) -> None:
        self._forget(connection)
        connection.force_close()

    def _forget(self, connection: web.RequestHandler) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()


class _Watched(asyncio.Protocol):
    """aiohttp's protocol of one connection, which tells when the connection begins and ends."""

    def __init__(self, handler: web.RequestHandler, connections: Connections) -> None:
        self._handler = handler
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handler.connection_made(transport)
        self._connections.opened(self._handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)
        self._connections.lost(self._handler)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()
