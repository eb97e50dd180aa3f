"""The relay's end inside its container: connections of a Unix socket, carried as frames over stdin and stdout.

A frame is a header (connection, kind, size) and ``size`` bytes. It uses the standard library only and ends when stdin
does, which is when whoever attached to the container goes away.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path

HEADER = struct.Struct(">IBI")
OPEN, DATA, END = 0, 1, 2
CHUNK = 65536
SOCKET = "/run/uniclaw/agent.sock"


class Relay:
    """The open connections by number."""

    def __init__(self) -> None:
        self.writers: dict[int, asyncio.StreamWriter] = {}
        self.last = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what an agent sends until it sends no more; the answer ends the connection."""
        self.last += 1
        number = self.last
        self.writers[number] = writer
        send(number, OPEN)
        try:
            while data := await reader.read(CHUNK):
                send(number, DATA, data)
        except OSError:
            pass  # an agent that was killed: its end is told like any other
        send(number, END)

    def take(self, number: int, kind: int, data: bytes) -> None:
        """Give an agent what came for it."""
        writer = self.writers.get(number)
        if writer is None:
            return
        if kind == DATA:
            writer.write(data)
        else:
            del self.writers[number]
            writer.close()


def send(number: int, kind: int, data: bytes = b"") -> None:
    """Write one frame."""
    sys.stdout.buffer.write(HEADER.pack(number, kind, len(data)) + data)
    sys.stdout.buffer.flush()


async def main() -> None:
    """Serve until stdin ends."""
    relay = Relay()
    frames = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(frames), sys.stdin)
    async with await asyncio.start_unix_server(relay.accept, SOCKET):
        Path(SOCKET).chmod(0o666)
        send(0, OPEN)
        while True:
            try:
                number, kind, size = HEADER.unpack(await frames.readexactly(HEADER.size))
                relay.take(number, kind, await frames.readexactly(size))
            except asyncio.IncompleteReadError:
                break
    sys.exit(0)  # connections that are still open end with the process


if __name__ == "__main__":
    asyncio.run(main())
