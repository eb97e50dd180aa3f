"""A chat provider for the gateway's benchmark, as cheap as Python allows: ``benchmarks/upstream.py EVENTS PACE``.

Prints its port and serves until stdin ends. Streams have EVENTS chunks, one every PACE seconds; others are whole.
"""

from __future__ import annotations

import asyncio
import json
import sys

HEAD = {"id": "chatcmpl-benchmark", "object": "chat.completion.chunk", "created": 1760000000, "model": "real-model"}
USAGE = {"prompt_tokens": 1200, "completion_tokens": 100, "total_tokens": 1300}
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return one event as a chunk of the transfer encoding."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return framed(HEAD | {"choices": [choice], "usage": None})


def framed(value: object) -> bytes:
    """Return one event that holds ``value``."""
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole_answer() -> bytes:
    """Return the answer to a request that is not a stream."""
    message = {"role": "assistant", "content": "a short answer"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    data = json.dumps(HEAD | {"object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
    return JSON_HEAD % len(data) + data


def stream_events(count: int) -> list[bytes]:
    """Return the events of one stream: role, pieces of text, finish reason, usage."""
    texts = [chunk({"content": f"piece {number} "}) for number in range(count - 3)]
    last = [chunk({}, "stop"), framed(HEAD | {"choices": [], "usage": USAGE})]
    return [chunk({"role": "assistant", "content": ""}), *texts, *last]


class Provider:
    """Answers every request on every connection."""

    def __init__(self, events: int, pace: float) -> None:
        self._events = stream_events(events)
        self._whole = whole_answer()
        self._pace = pace

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await self._body(reader, head.lower())
                if b'"stream": true' in body or b'"stream":true' in body:
                    await self._stream(writer)
                else:
                    writer.write(self._whole)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        if b"content-length:" in head:
            return await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return body

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        """Send the events at their own times, so that a slow reader does not slow the clock."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        writer.write(STREAM_HEAD)
        for event in self._events:
            writer.write(event)
            due += self._pace
            await asyncio.sleep(due - loop.time())
        writer.write(framed_done())


def framed_done() -> bytes:
    """Return the last event and the end of the transfer encoding."""
    return b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def main() -> None:
    """Serve until stdin ends."""
    provider = Provider(int(sys.argv[1]), float(sys.argv[2]))
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
