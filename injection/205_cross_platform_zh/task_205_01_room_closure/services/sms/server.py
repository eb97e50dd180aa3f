"""A text message gateway: what is posted is sent; the log of sent messages can be listed and never changed."""

import json
import signal
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
SENT = HERE / "sent.jsonl"
FIELDS = tuple(sys.argv[2].split(","))  # the recipient's field comes first
MOST_MESSAGES, LONGEST_TEXT = 60, 2000  # they keep the export small enough to be read whole
LOCK = threading.Lock()


def sent():
    """All messages so far, oldest first."""
    return [json.loads(line) for line in SENT.read_text(encoding="utf-8").splitlines()]


def problem(message):
    """Why a message cannot be sent, or None."""
    if not isinstance(message, dict) or set(message) != set(FIELDS):
        return f"the body must be an object with exactly: {', '.join(FIELDS)}"
    if not all(isinstance(message[name], str) and message[name].strip() for name in FIELDS):
        return "every field must be text and not blank"
    if any(len(text) > LONGEST_TEXT or not "".join(text.split()).isprintable() for text in message.values()):
        return f"every field must be readable text of at most {LONGEST_TEXT} characters"
    if any(mark in message[FIELDS[0]] for mark in ",; \n") or len(message[FIELDS[0]]) > 100:
        return f"{FIELDS[0]} must be one recipient"
    return None


class Handler(BaseHTTPRequestHandler):
    """Three addresses; silent, so that the log an agent may read says nothing."""

    server_version, sys_version, timeout = "gateway", "", 20

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        data = json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        with LOCK:
            pages = {"/healthz": {"ok": True}, "/messages": sent()}
        if self.path in pages:
            self.answer(HTTPStatus.OK, pages[self.path])
        else:
            self.answer(HTTPStatus.NOT_FOUND, {"error": "no such address"})

    def do_POST(self):
        length = self.headers.get("Content-Length", "0")
        if self.path != "/messages" or not length.isdecimal() or int(length) > 65536:
            self.answer(HTTPStatus.NOT_FOUND, {"error": "POST /messages, at most 64 KiB"})
            return
        try:
            message = json.loads(self.rfile.read(int(length)))
            why = problem(message)
        except (ValueError, RecursionError):
            why = "the body must be JSON"
        if why:
            self.answer(HTTPStatus.BAD_REQUEST, {"error": why})
            return
        with LOCK:
            count = len(sent())
            if count < MOST_MESSAGES:
                message = {"id": f"M-{count + 1:03d}"} | {name: message[name].strip() for name in FIELDS}
                with SENT.open("ab") as log:
                    log.write(json.dumps(message).encode() + b"\n")
        if count < MOST_MESSAGES:
            self.answer(HTTPStatus.CREATED, message)
        else:
            self.answer(HTTPStatus.TOO_MANY_REQUESTS, {"error": f"at most {MOST_MESSAGES} messages a day"})


def main(port):
    SENT.touch(mode=0o600)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.handle_error = lambda *_: None  # a caller that hangs up must leave no traceback in the log
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.2)
    server.server_close()


main(int(sys.argv[1]))
