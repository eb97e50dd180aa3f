"""Move what the closure hits, tell the contacts, write moves.csv and summary.md."""

import csv
import json
import re
import sys
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path

BOOKINGS, MAIL = "http://127.0.0.1:8310", "http://127.0.0.1:8320"
CLOSED, GAP = "S2", timedelta(minutes=15)
COLUMNS = ("booking", "from_room", "to_room", "starts_at", "contact", "message_id")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(method, url, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    with OPENER.open(request, timeout=20) as answer:
        return json.load(answer)


def all_bookings():
    found, offset = [], 0
    while offset is not None:
        page = call("GET", f"{BOOKINGS}/bookings?offset={offset}")
        found += page["items"]
        offset = page["next_offset"]
    return found


def span(booking):
    return datetime.fromisoformat(booking["starts_at"]), datetime.fromisoformat(booking["ends_at"])


def closures(path, rooms):
    """(room id, start, end) of every calendar event that takes a room."""
    names, events = {room["name"]: room["id"] for room in rooms}, []
    for event in path.read_text(encoding="utf-8").split("BEGIN:VEVENT")[1:]:
        fields = dict(re.findall(r"^(\w+):(.*?)\r?$", event, re.MULTILINE))
        if fields["LOCATION"] in names:
            times = [datetime.fromisoformat(fields[name]) for name in ("DTSTART", "DTEND")]
            events.append((names[fields["LOCATION"]], *times))
    return events


def free(room, booking, bookings, closed):
    start, end = span(booking)
    if any(where == room and start < until and since < end for where, since, until in closed):
        return False
    live = [b for b in bookings if b["room"] == room and b["status"] == "confirmed" and b["id"] != booking["id"]]
    return all(start >= span(other)[1] + GAP or end + GAP <= span(other)[0] for other in live)


def choose(booking, rooms, bookings, closed):
    fits = [
        room for room in rooms
        if room["id"] != booking["room"] and room["seats"] >= booking["people"]
        and set(booking["needs"]) <= set(room["has"]) and free(room["id"], booking, bookings, closed)
    ]
    return min(fits, key=lambda room: room["seats"], default=None)


def main(sources, results):
    rooms, bookings = call("GET", f"{BOOKINGS}/rooms"), all_bookings()
    closed = closures(sources / "facilities.ics", rooms)
    with (sources / "crm/contacts.csv").open(encoding="utf-8", newline="") as handle:
        people = {row[name]: row for row in csv.DictReader(handle) for name in ("email", "former_email") if row[name]}
    rows, unsolved, calls = [], [], []
    for booking in [b for b in bookings if b["room"] == CLOSED and b["status"] == "confirmed"]:
        if free(CLOSED, booking, [], closed):
            continue
        if booking["handling"] == "do-not-move":
            unsolved.append(f"{booking['id']} {booking['title']}: marked do-not-move, left alone, nobody written to.")
            continue
        room = choose(booking, rooms, bookings, closed)
        if room is None:
            unsolved.append(f"{booking['id']} {booking['title']}: no room is free that seats {booking['people']}.")
            continue
        call("PATCH", f"{BOOKINGS}/bookings/{booking['id']}", {"version": booking["version"], "room": room["id"]})
        booking["room"] = room["id"]
        person, start = people[booking["contact"]], span(booking)[0]
        contact, message = person["phone"], ""
        if person["reach_by"] == "mail":
            contact = person["email"]
            text = (f"Dear {person['name']},\n\nStudio 2 is closed. Your booking {booking['id']} on {start:%A} "
                    f"{start.day} {start:%B} at {start:%H:%M} is in the {room['name']} instead.\n\nMarlport Arts")
            mail = {"to": contact, "subject": f"Booking {booking['id']}: new room", "body": text}
            message = call("POST", f"{MAIL}/messages", mail)["id"]
        else:
            calls.append(f"{booking['id']} {booking['title']}: ring {person['name']}, {contact}, about {room['name']}.")
        rows.append((booking["id"], CLOSED, room["id"], booking["starts_at"], contact, message))
    results.mkdir(parents=True, exist_ok=True)
    with (results / "moves.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([COLUMNS, *rows])
    lists = "\n".join(["## Open", *(f"- {x}" for x in unsolved), "", "## Phone list", *(f"- {x}" for x in calls)])
    text = f"# Studio 2 closure: {len(rows)} bookings moved\n\n{lists}\n"
    (results / "summary.md").write_text(text, encoding="utf-8")


main(Path(sys.argv[1]), Path(sys.argv[2]))
