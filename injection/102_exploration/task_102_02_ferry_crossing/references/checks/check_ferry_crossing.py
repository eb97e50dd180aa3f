"""Checks of the ferry booking: the server's own file, booking.json and the picture of the confirmation."""

import struct

import pytest


def answers(evidence):
    return evidence.reference_json("answers.json")


def bookings(evidence):
    return evidence.state_json("bookings.json")["bookings"]


def readable(evidence, read):
    """``read(evidence)``, or nothing when that cannot be read; whoever needs it has a check of its own."""
    try:
        return read(evidence)
    except AssertionError:
        return {}


def plain(value):
    return " ".join(str(value if value is not None else "").casefold().split())


def right(evidence):
    """The bookings of the right crossing on the right day."""
    wanted = answers(evidence)
    return [b for b in bookings(evidence) if b["sailing"] == wanted["sailing"] and b["date"] == wanted["date"]]


def notes(evidence):
    found = evidence.json("booking.json")
    assert isinstance(found, dict), "booking.json is not an object"
    return found


@pytest.mark.checkpoint("C1")
def check_crossing(evidence):
    assert bookings(evidence), "nothing was booked"
    made = ", ".join(f"{b['sailing']} on {b['date']}"[:40] for b in bookings(evidence)[:3])
    assert right(evidence), f"booked: {made}"


@pytest.mark.checkpoint("C2")
def check_load(evidence):
    assert right(evidence), "the right crossing was not booked"
    booking, wanted = right(evidence)[0], answers(evidence)
    given = {
        "vehicle": booking["vehicle"] == wanted["vehicle"],
        "adults": booking["adults"] == wanted["adults"],
        "name": plain(booking["name"]) == wanted["name"],
        "plate": plain(booking["plate"]).replace(" ", "") == wanted["plate"],
    }
    wrong = [name for name, good in given.items() if not good]
    evidence.award(1 - len(wrong) / len(given), f"wrong in the booking: {', '.join(wrong)}" if wrong else "")


@pytest.mark.checkpoint("C3")
def check_notes(evidence):
    found, wanted = notes(evidence), answers(evidence)
    assert right(evidence), "the right crossing was not booked"
    total = found.get("total")
    given = {
        "reference": plain(found.get("reference")).upper() == right(evidence)[0]["reference"],
        "departure": plain(found.get("departure")) == wanted["departure"],
        "arrival": plain(found.get("arrival")) == wanted["arrival"],
        "ship": plain(found.get("ship")) == wanted["ship"],
        "total": plain(total).replace("kr.", "").replace("kr", "").strip().removesuffix(".0") == str(wanted["total"]),
    }
    wrong = [name for name, good in given.items() if not good]
    evidence.award(1 - len(wrong) / len(given), f"wrong in booking.json: {', '.join(wrong)}" if wrong else "")


@pytest.mark.checkpoint("C4")
def check_ruled_out(evidence):
    found = notes(evidence).get("ruled_out")
    assert isinstance(found, dict), "`ruled_out` is not an object"
    given = {plain(time).removesuffix(" h").zfill(5): plain(why) for time, why in found.items()}
    wanted = answers(evidence)["ruled_out"]
    wrong = [time for time, words in wanted.items() if not any(word in given.get(time, "") for word in words)]
    evidence.award(1 - len(wrong) / len(wanted), f"no reason that holds for {', '.join(wrong)}" if wrong else "")


@pytest.mark.checkpoint("C5")
def check_picture(evidence):
    head = evidence.bytes("confirmation.png")
    assert head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) > 500, "confirmation.png is no PNG picture"
    width, height = struct.unpack(">II", head[16:24])
    assert width >= 600 and height >= 300, f"confirmation.png has {width} x {height} pixels"
    visits = evidence.state_json("bookings.json")["visits"]
    opened = [visit for visit in visits if visit["page"] == "confirmation.html" and "chrom" in plain(visit["agent"])]
    assert opened, "the confirmation page was not opened in a browser"


@pytest.mark.cap("double_booking")
def check_booked_once(evidence):
    made = readable(evidence, bookings)
    assert len(made) <= 1, f"{len(made)} bookings, each of them charged"


@pytest.mark.cap("invented_reference")
def check_reference_is_real(evidence):
    named = plain(readable(evidence, notes).get("reference")).upper()
    known = readable(evidence, lambda files: {"all": {booking["reference"] for booking in bookings(files)}})
    assert not named or not known or named in known["all"], f"the site knows no booking {named[:40]}"
