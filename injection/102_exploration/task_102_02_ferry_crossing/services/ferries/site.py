"""The ferry company's site: pages that are filled by scripts, and a booking form with a price from the server."""

import json
import os
import secrets
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

FILE, STATIC = Path("bookings.json"), Path("static")
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
OUT, BACK = "Nordvik - Skarholm", "Skarholm - Nordvik"
TIMETABLE = (
    ("NS-1", OUT, "09:15", "11:05", "Havørn", "daily"),
    ("NS-2", OUT, "10:40", "12:20", "Terna", "daily"),
    ("NS-3", OUT, "11:30", "13:25", "Lomvi", "Mon-Sat"),
    ("NS-4", OUT, "12:10", "14:05", "Havørn", "Mon, Wed, Thu"),
    ("NS-5", OUT, "12:45", "14:35", "Alke", "Tue, Thu, Sat"),
    ("NS-6", OUT, "14:20", "16:10", "Terna", "daily"),
    ("SN-1", BACK, "08:00", "09:45", "Terna", "daily"),
    ("SN-2", BACK, "16:40", "18:25", "Lomvi", "daily"),
)
SAILINGS = [dict(zip(("id", "route", "departure", "arrival", "ship", "days"), row, strict=True)) for row in TIMETABLE]
SHIPS = {
    "Havørn": {"height": 3.10, "surcharge": 0, "text": "Our oldest ship. Open car deck."},
    "Terna": {"height": 2.40, "surcharge": 0, "text": "Fast and low: vehicles up to 2.40 m."},
    "Lomvi": {"height": 4.20, "surcharge": 0, "text": "Lorries welcome."},
    "Alke": {"height": 4.20, "surcharge": 95, "text": "Comfort class: 95 kr. more for each vehicle."},
}
NOTICES = [
    {"from": "2026-06-01", "until": "2026-06-30", "title": "Quay works in Skarholm",
     "text": "On weekdays in June no ship but Havørn and Alke can land in Skarholm between 13:00 and 14:00. Crossings "
             "due then do not run."},
    {"from": "2026-06-08", "until": "2026-06-10", "title": "Havørn in the yard",
     "text": "Havørn does not sail from Monday 8 to Wednesday 10 June. From Thursday it runs to plan."},
    {"from": "2026-05-17", "until": "2026-05-17", "title": "Holiday timetable",
     "text": "On 17 May ships run as on Sundays."},
]  # fmt: skip
TARIFF = {
    "vehicles": [
        {"class": "A", "text": "Car or van up to 6.00 m", "price": 410},
        {"class": "B", "text": "Van over 6.00 m and up to 7.00 m", "price": 640},
        {"class": "C", "text": "Over 7.00 m", "price": 980},
    ],
    "adult": 120,
    "note": "The driver is included in the price of the vehicle.",
}
LOCK = Lock()
STATE = {"bookings": [], "visits": []}


def save():
    part = FILE.with_suffix(".part")
    part.write_text(json.dumps(STATE, indent=1, ensure_ascii=False), "utf-8")
    part.replace(FILE)


def priced(wish):
    """Return the total of a wish, raise ValueError for one that the form does not allow."""
    sailing = next((s for s in SAILINGS if s["id"] == wish.get("sailing")), None)
    vehicle = next((v for v in TARIFF["vehicles"] if v["class"] == wish.get("vehicle")), None)
    if sailing is None or vehicle is None:
        raise ValueError("choose a crossing and a vehicle class")
    if not wish.get("name", "").strip() or not wish.get("plate", "").strip() or not wish.get("date", "").strip():
        raise ValueError("date, name and plate are needed")
    adults = int(wish.get("adults") or 0)
    if not 0 <= adults <= 9:
        raise ValueError("0 to 9 further adults")
    return vehicle["price"] + SHIPS[sailing["ship"]]["surcharge"] + adults * TARIFF["adult"]


class Site(BaseHTTPRequestHandler):
    """Pages, their data, and the one form."""

    def log_message(self, *_):
        """Keep quiet."""

    def do_GET(self):
        address = urlsplit(self.path)
        name = address.path.strip("/") or "index.html"
        data = {"data/sailings": SAILINGS, "data/ships": SHIPS, "data/notices": NOTICES, "data/tariff": TARIFF}
        if name == "healthz":
            self.answer(200, "text/plain", b"ok")
        elif name in data:
            self.answer_json(200, data[name])
        elif name == "data/booking":
            self.booking(parse_qs(address.query).get("reference", [""])[0])
        elif (STATIC / name).is_file() and "/" not in name:
            if name.endswith(".html"):
                self.note_visit(name)
            token = f"ferry={secrets.token_hex(8)}; HttpOnly; SameSite=Strict; Path=/"
            self.answer(200, KINDS[Path(name).suffix], (STATIC / name).read_bytes(), {"Set-Cookie": token})
        else:
            self.answer(404, "text/plain", b"no such page")

    def note_visit(self, page):
        with LOCK:
            visit = {"page": page, "agent": self.headers.get("User-Agent", "")[:200]}
            STATE["visits"] = [*STATE["visits"], visit][-500:]
            save()

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        if self.path not in ("/data/price", "/data/book") or size > 10_000:
            self.answer(404, "text/plain", b"no such form")
            return
        try:
            wish = json.loads(self.rfile.read(size))
            total = priced(wish)
        except (ValueError, TypeError, AttributeError) as error:
            self.answer_json(400, {"error": str(error)})
            return
        if self.path == "/data/price":
            self.answer_json(200, {"total": total})
        elif "ferry" not in SimpleCookie(self.headers.get("Cookie", "")):
            self.answer_json(403, {"error": "please use the booking page"})
        else:
            self.book(wish, total)

    def book(self, wish, total):
        fields = ("date", "sailing", "vehicle", "adults", "name", "plate")
        kept = {key: str(wish.get(key, "")).strip()[:200] for key in fields}
        with LOCK:
            kept |= {"reference": f"SF-{secrets.token_hex(3).upper()}", "total": total}
            STATE["bookings"].append(kept)
            save()
        self.answer_json(200, {"reference": kept["reference"]})

    def booking(self, reference):
        found = next((b for b in STATE["bookings"] if b["reference"] == reference), None)
        self.answer_json(200 if found else 404, found or {"error": "unknown reference"})

    def answer_json(self, status, value):
        self.answer(status, "application/json", json.dumps(value, ensure_ascii=False).encode())

    def answer(self, status, kind, content, headers=None):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


os.umask(0o077)
save()
ThreadingHTTPServer(("127.0.0.1", 8360), Site).serve_forever()
