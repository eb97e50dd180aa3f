"""A chat provider on loopback whose every answer a test decides, and a client of the gateway's agent socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers a request, whose decoded body is ``body``, with the server's next act."""

    server: Upstream
    body: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append({"headers": dict(self.headers), "path": self.path, "body": self.body})
        self.server.next_act(self.body)(self)

    def log_message(self, *args: Any) -> None:
        pass

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def whole(self, status: int, body: Any, content_type: str = "application/json", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        names = {"content-type": content_type, "content-length": str(len(data))}
        for name, value in (names | {k.replace("_", "-"): v for k, v in headers.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def events(self, values: Sequence[Any], *, done: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for value in values:
            self.wfile.write(f"data: {json.dumps(value)}\r\n\r\n".encode())
            self.wfile.flush()
        if done:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


class Upstream(ThreadingHTTPServer):
    """The server; ``acts`` are played in order, the last one for ever."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.acts: list[Act] = []
        self.release = threading.Event()
        self.gone = threading.Event()
        self._lock = threading.Lock()

    def handle_error(self, *args: Any) -> None:
        """Clients may leave; that is no news."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def play(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.requests.clear()
        self.release.clear()
        self.gone.clear()

    def next_act(self, body: Any) -> Act:
        return self.next_of(self.acts)

    def next_of(self, acts: list[Act]) -> Act:
        with self._lock:
            return acts.pop(0) if len(acts) > 1 else acts[0]


Server = TypeVar("Server", bound=Upstream)


@contextmanager
def running_upstream() -> Iterator[Upstream]:
    with running(Upstream()) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        thread.join(5)
        server.server_close()


HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "real-1"}


def completion(text: str = "fine", **usage: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14} | usage
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return HEAD | {"object": "chat.completion", "choices": [choice], "usage": counts}


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return HEAD | {"choices": [choice]}


def usage_chunk() -> dict[str, Any]:
    details = {"cached_tokens": 4}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "prompt_tokens_details": details}
    return HEAD | {"choices": [], "usage": usage}


def ok(text: str = "fine") -> Act:
    """The answer, streamed or whole as it was asked for."""

    def act(handler: Handler) -> None:
        if handler.body.get("stream"):
            handler.events([piece(text[:2]), piece(text[2:]), piece("", "stop"), usage_chunk()])
        else:
            handler.whole(200, completion(text))

    return act


def error(status: int, message: str = "no", kind: str = "server_error", code: str | None = None, **headers: str) -> Act:
    body = {"error": {"message": message, "type": kind, "code": code}}
    return lambda handler: handler.whole(status, body, **headers)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str
    events: list[Any] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def said(self) -> str:
        """The text of a whole or streamed answer."""
        if not self.events:
            return self.json["choices"][0]["message"]["content"] or ""
        chunks = [event for event in self.events if event != "[DONE]" and event.get("choices")]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def ask(path: Path, key: str, body: Any, *, method: str = "POST", url: str = "/v1/chat/completions") -> Reply:
    """One request on the agents' socket, as an agent makes it."""
    connection = UnixConnection(path)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        connection.request(method, url, data, {"authorization": f"Bearer {key}", "content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    events = [
        line if line == "[DONE]" else json.loads(line)
        for line in (part.removeprefix("data: ") for part in text.split("\n\n") if part.startswith("data: "))
    ]
    return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, text, events)
