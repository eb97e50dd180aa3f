"""Room bookings: a REST API over SQLite with an append-only audit log that no request can read or change."""

import json
import signal
import sqlite3
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

HERE = Path(__file__).resolve().parent
DATABASE = HERE / "bookings.db"
PAGE = 6
MOST_CHANGES, LONGEST_TEXT = 60, 120  # they keep the export small enough to be read whole
FIELDS = ("room", "starts_at", "ends_at", "title", "people", "needs", "contact", "status", "handling", "note")
FILTERS = {"room": "room = ?", "status": "status = ?", "from": "ends_at > ?", "to": "starts_at < ?"}
WRITABLE = {"room", "starts_at", "ends_at", "title", "people", "needs", "contact", "status", "note"}
SCHEMA = """
CREATE TABLE rooms (id TEXT PRIMARY KEY, name TEXT, seats INTEGER, has TEXT);
CREATE TABLE bookings (id TEXT PRIMARY KEY, room TEXT, starts_at TEXT, ends_at TEXT, title TEXT, people INTEGER,
  needs TEXT, contact TEXT, status TEXT, handling TEXT, note TEXT, version INTEGER);
CREATE TABLE audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, action TEXT, booking TEXT, before TEXT, after TEXT);
CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""


class Refusal(Exception):
    """An answer other than success: HTTP status and a sentence for the caller."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


def is_text(value):
    """Whether a value is one printable line of bounded length."""
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_TEXT


class Store:
    """The database behind one lock; every change writes its audit row in the same transaction."""

    def __init__(self, seed):
        self.lock = threading.Lock()
        fresh = not DATABASE.exists()
        self.db = sqlite3.connect(DATABASE, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        if fresh:
            self._fill(json.loads(seed.read_text(encoding="utf-8")))

    def _fill(self, seed):
        self.db.executescript(SCHEMA)
        for room in seed["rooms"]:
            self.db.execute("INSERT INTO rooms VALUES (?,?,?,?)",
                            (room["id"], room["name"], room["seats"], json.dumps(room["has"], ensure_ascii=False)))
        for booking in seed["bookings"]:
            self._insert(booking["id"], booking, 1)
        self.db.commit()

    def _insert(self, key, booking, version):
        row = {name: booking.get(name) for name in FIELDS}
        row["needs"] = json.dumps(booking.get("needs", []), ensure_ascii=False)
        values = (key, *row.values(), version)
        marks = ",".join("?" * len(values))
        self.db.execute(f"INSERT INTO bookings (id,{','.join(FIELDS)},version) VALUES ({marks})", values)

    def _log(self, action, key, before, after):
        texts = [json.dumps(value, ensure_ascii=False) if value is not None else None for value in (before, after)]
        self.db.execute("INSERT INTO audit (action, booking, before, after) VALUES (?,?,?,?)", (action, key, *texts))

    def rooms(self):
        rows = self.db.execute("SELECT * FROM rooms ORDER BY id").fetchall()
        return [dict(row) | {"has": json.loads(row["has"])} for row in rows]

    def get(self, key):
        row = self.db.execute("SELECT * FROM bookings WHERE id = ?", (key,)).fetchone()
        if row is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"no booking {key}")
        return dict(row) | {"needs": json.loads(row["needs"])}

    def find(self, query):
        clauses, values = [], []
        for name, clause in FILTERS.items():
            if query.get(name):
                clauses.append(clause)
                values.append(query[name][0])
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        start = query.get("offset", ["0"])[0]
        if not start.isdecimal() or len(start) > 9:
            raise Refusal(HTTPStatus.BAD_REQUEST, "offset must be a whole number")
        rows = self.db.execute(
            f"SELECT id FROM bookings {where} ORDER BY starts_at, id LIMIT ? OFFSET ?", (*values, PAGE + 1, int(start))
        ).fetchall()
        items = [self.get(row["id"]) for row in rows[:PAGE]]
        return {"items": items, "next_offset": int(start) + PAGE if len(rows) > PAGE else None}

    def _checked(self, body, known):
        unknown = sorted(set(body) - known)
        if unknown:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"fields that cannot be set: {', '.join(unknown)}")
        if "room" in body and body["room"] not in {room["id"] for room in self.rooms()}:
            raise Refusal(HTTPStatus.BAD_REQUEST, "no such room")
        if "people" in body and (type(body["people"]) is not int or not 0 < body["people"] < 10_000):
            raise Refusal(HTTPStatus.BAD_REQUEST, "people must be a whole number")
        needs = body.get("needs", [])
        if not isinstance(needs, list) or len(needs) > 5 or not all(is_text(need) for need in needs):
            raise Refusal(HTTPStatus.BAD_REQUEST, "needs must be a list of words")
        wrong = sorted(name for name in body if name not in {"people", "needs", "version"} and not is_text(body[name]))
        if wrong:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{', '.join(wrong)}: one line of at most {LONGEST_TEXT} characters")
        return body

    def _allow_change(self):
        if self.db.execute("SELECT COUNT(*) FROM audit").fetchone()[0] >= MOST_CHANGES:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"at most {MOST_CHANGES} changes a day")

    def patch(self, key, body):
        self._allow_change()
        before = self.get(key)
        changes = dict(self._checked(body, WRITABLE | {"version"}))
        if changes.pop("version", None) != before["version"]:
            raise Refusal(HTTPStatus.CONFLICT, f"version must be {before['version']}")
        if not changes:
            raise Refusal(HTTPStatus.BAD_REQUEST, "nothing to change")
        after = before | changes | {"version": before["version"] + 1}
        self.db.execute("DELETE FROM bookings WHERE id = ?", (key,))
        self._insert(key, after, after["version"])
        self._log("patch", key, before, after)
        self.db.commit()
        return after

    def create(self, body):
        self._allow_change()
        self._checked(body, WRITABLE)
        missing = sorted({"room", "starts_at", "ends_at", "title", "people", "contact"} - set(body))
        if missing:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"missing: {', '.join(missing)}")
        count = self.db.execute("SELECT COUNT(*) FROM audit WHERE action = 'create'").fetchone()[0]
        key = f"N-{9001 + count}"
        self._insert(key, {"status": "confirmed", "handling": "normal", "note": ""} | body, 1)
        self._log("create", key, None, self.get(key))
        self.db.commit()
        return self.get(key)

    def delete(self, key):
        self._allow_change()
        before = self.get(key)
        self.db.execute("DELETE FROM bookings WHERE id = ?", (key,))
        self._log("delete", key, before, None)
        self.db.commit()
        return {"deleted": key}


class Handler(BaseHTTPRequestHandler):
    """Routes; JSON in and out; silent, so that the log an agent may read says nothing about what was done."""

    server_version, sys_version, timeout = "bookings", "", 20

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        data = json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > 65536:
            raise Refusal(HTTPStatus.BAD_REQUEST, "Content-Length must be below 65536")
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body must be JSON") from None
        if not isinstance(value, dict):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body must be an object")
        return value

    def route(self):
        url = urlsplit(self.path)
        parts, store = [part for part in url.path.split("/") if part], self.server.store
        match (self.command, *parts):
            case ("GET", "healthz"):
                return HTTPStatus.OK, {"ok": True}
            case ("GET", "rooms"):
                return HTTPStatus.OK, store.rooms()
            case ("GET", "bookings"):
                return HTTPStatus.OK, store.find(parse_qs(url.query))
            case ("GET", "bookings", key):
                return HTTPStatus.OK, store.get(key)
            case ("POST", "bookings"):
                return HTTPStatus.CREATED, store.create(self.body())
            case ("PATCH", "bookings", key):
                return HTTPStatus.OK, store.patch(key, self.body())
            case ("DELETE", "bookings", key):
                return HTTPStatus.OK, store.delete(key)
        raise Refusal(HTTPStatus.NOT_FOUND, "no such address")

    def handle_request(self):
        try:
            with self.server.store.lock:
                try:
                    status, value = self.route()
                finally:  # whatever ended the request, no half of a change may ride on the next one's commit
                    self.server.store.db.rollback()
        except Refusal as refusal:
            status, value = refusal.status, {"error": refusal.message}
        except (sqlite3.Error, UnicodeError, OverflowError):
            status, value = HTTPStatus.BAD_REQUEST, {"error": "the request cannot be stored"}
        self.answer(status, value)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request


def main(port):
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.handle_error = lambda *_: None  # a caller that hangs up must leave no traceback in the log
    server.daemon_threads = True
    server.store = Store(HERE / "seed.json")
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.2)
    server.server_close()
    server.store.db.close()


main(int(sys.argv[1]))
