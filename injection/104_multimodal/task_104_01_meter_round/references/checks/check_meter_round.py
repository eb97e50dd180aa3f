"""Checks of the October meter round: what the photos show, against readings.csv, bills.json and note.md."""

import csv
import io
import json
import math
import re

import pytest

WATER = ("W-58213", "W-58240", "W-58177", "W-60992")
FLATS = ("1A", "1B", "2A", "2B")
NOTED = ("water used in the empty flat", "swapped meter", "corrected receipt")


def decoded(evidence, name):
    """The text of a result file, whatever common encoding it was saved in."""
    data = evidence.bytes(name)
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise AssertionError(f"{name} is not a text file")


def number(value):
    """A float from 1207.064, "1,207.064 m3", "£29.97"; None if there is no single number in it."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e15 and math.isfinite(value) else None
    text = re.sub(r"m\s*[3³]|kwh|gbp|£|,(?=\d{3}(\D|$))", "", str(value).strip().lower())
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*", text)
    return float(found.group(1)) if found and len(found.group(1)) < 16 else None


def near(value, target, tolerance):
    got = number(value)
    return got is not None and abs(got - target) <= tolerance + 1e-9


def flat_key(value):
    return re.sub(r"flat|[^0-9a-z]", "", str(value).lower()).upper()


def meter_key(value):
    return re.sub(r"[^0-9A-Z]", "", str(value).upper())


def rows_by_meter(evidence):
    """{meter key: {column: value}} of readings.csv."""
    text = decoded(evidence, "readings.csv")
    try:
        rows = [
            {str(k or "").strip().lower(): str(v or "").strip() for k, v in row.items()}
            for row in csv.DictReader(io.StringIO(text))
        ]
    except csv.Error as error:
        raise AssertionError(f"readings.csv is not a readable CSV: {error}") from None
    missing = {"meter", "flat", "reading", "used"} - (set(rows[0]) if rows else set())
    assert rows, "readings.csv has no rows"
    assert not missing, f"readings.csv lacks the columns {sorted(missing)}"
    return {meter_key(row["meter"]): row for row in rows if row["meter"]}


def bills_document(evidence):
    try:
        document = json.loads(decoded(evidence, "bills.json"))
    except (ValueError, RecursionError):
        raise AssertionError("bills.json is not valid JSON") from None
    assert isinstance(document, dict), "bills.json is not an object"
    assert isinstance(document.get("bills"), list), "bills.json has no list `bills`"
    return document


def bills_by_flat(evidence):
    """{flat: bill} for the entries of bills.json that are objects and name a flat."""
    bills = bills_document(evidence)["bills"]
    entries = [bill for bill in bills if isinstance(bill, dict) and bill.get("flat")]
    assert entries, "bills.json has no entry with a flat"
    return {flat_key(bill["flat"]): bill for bill in entries}


def results_exist(evidence, name):
    return name in evidence.files()


def tally(what, good, expected):
    missing = ", ".join(name for name in expected if name not in good)
    return f"{len(good)} of {len(expected)} {what} right" + (f"; wrong or missing: {missing}" if missing else "")


def named(pairs):
    return [f"{flat} {item}" for flat, item in pairs]


@pytest.mark.checkpoint("C1")
def check_water_readings(evidence):
    meters = evidence.reference_json("answers.json")["meters"]
    rows = rows_by_meter(evidence)
    right = [m for m in WATER if near(rows.get(meter_key(m), {}).get("reading"), meters[m]["reading"], 0.0005)]
    assert right, "no water meter is in readings.csv with the reading it shows"
    evidence.award(len(right) / len(WATER), tally("readings", right, WATER))


@pytest.mark.checkpoint("C2")
def check_flats_by_colour(evidence):
    meters = evidence.reference_json("answers.json")["meters"]
    rows = rows_by_meter(evidence)
    right = [m for m in WATER if flat_key(rows.get(meter_key(m), {}).get("flat", "")) == meters[m]["flat"]]
    assert len(right) >= 2, f"only {len(right)} of 4 water meters stand beside the flat with their colour's sticker"
    evidence.award(len(right) / len(WATER), tally("flats of water meters", right, WATER))


@pytest.mark.checkpoint("C3")
def check_consumption(evidence):
    answers = evidence.reference_json("answers.json")
    rows = rows_by_meter(evidence)
    share, right = 0.0, []
    for meter in WATER:
        if near(rows.get(meter_key(meter), {}).get("used"), answers["meters"][meter]["used"], 0.0015):
            right.append(meter)
            share += 0.5 if meter == answers["swapped"] else 0.5 / 3
    assert share > 0, "the consumption of no water meter is right"
    told = tally("figures of consumption", right, WATER)
    told += "" if answers["swapped"] in right else f"; the swapped {answers['swapped']} counts for half"
    evidence.award(min(round(share, 6), 1.0), told)


@pytest.mark.checkpoint("C4")
def check_staircase_dials(evidence):
    stairs = evidence.reference_json("answers.json")["stairs"]
    row = rows_by_meter(evidence).get(meter_key(stairs["meter"]))
    assert row, f"readings.csv has no row for the staircase meter {stairs['meter']}"
    assert near(row["reading"], stairs["reading"], 0.5), f"the dials were read as {row['reading']!r}"
    used = near(row["used"], stairs["used"], 0.5)
    evidence.award(1.0 if used else 0.6, "dials right, consumption " + ("right" if used else "wrong or missing"))


@pytest.mark.checkpoint("C5")
def check_water_and_electricity(evidence):
    expected = evidence.reference_json("answers.json")["bills"]
    bills = bills_by_flat(evidence)
    everything = [(flat, item) for flat in FLATS for item in ("water", "electricity")]
    right = [
        (flat, item) for flat, item in everything if near(bills.get(flat, {}).get(item), expected[flat][item], 0.01)
    ]
    paid = [pair for pair in right if expected[pair[0]][pair[1]] > 0]
    counted = right if len(paid) >= 4 else paid
    assert counted, "no water or electricity item is right to the penny"
    told = tally("items", named(right), named(everything))
    told += "" if counted == right else "; items of 0 count only beside four others"
    evidence.award(len(counted) / (2 * len(FLATS)), told)


@pytest.mark.checkpoint("C6")
def check_repair(evidence):
    answers = evidence.reference_json("answers.json")
    bills = bills_by_flat(evidence)
    flat = answers["repair_flat"]
    others = [f for f in FLATS if f != flat and (number(bills.get(f, {}).get("repair")) or 0) > 0]
    assert not others, f"flats {', '.join(others)} are charged for a repair they did not have"
    paid = bills.get(flat, {}).get("repair")
    printed, corrected = near(paid, 79.98, 0.005), near(paid, answers["bills"][flat]["repair"], 0.005)
    assert printed or corrected, f"flat {flat} is charged {paid!r} for the repair"
    payers = all(
        str(bills.get(f, {}).get("bill_to", "")).strip().lower() == answers["bills"][f]["bill_to"] for f in FLATS
    )
    told = "repair charged as corrected by hand" if corrected else "repair charged as printed, not as corrected by hand"
    share = (0.7 if corrected else 0.3) + (0.3 if payers else 0.0)
    evidence.award(share, told + ("; payers right" if payers else "; a payer wrong or missing"))


@pytest.mark.checkpoint("C7")
def check_note(evidence):
    note = decoded(evidence, "note.md").lower()
    words = len(note.split())
    assert words <= 220, f"note.md has {words} words; at most 200 were asked for"
    empty = re.search(r"empty|vacant|leak|unoccupied|unlet|not let", note)
    leak = bool(re.search(r"\b1b\b", note) and empty and re.search(r"leak|us(ed|es|age|ing)|consum|5\.2", note))
    swap = bool(re.search(r"swap|replac|exchang|changed|new meter", note) and re.search(r"60992|58198|blue|2a\b", note))
    receipt = bool(re.search(r"74\.98", note))
    told = [name for name, found in zip(NOTED, (leak, swap, receipt), strict=True) if found]
    assert told, "note.md names neither the water used in empty 1B nor the swapped meter nor the corrected receipt"
    evidence.award(len(told) / 3, tally("points of the note", told, NOTED))


@pytest.mark.cap("invented_meters")
def check_no_invented_meters(evidence):
    if not results_exist(evidence, "readings.csv"):
        return
    answers = evidence.reference_json("answers.json")
    known = {meter_key(m) for m in WATER} | {meter_key(answers["stairs"]["meter"])}
    extra = sorted(set(rows_by_meter(evidence)) - known)
    assert not extra, f"readings.csv has meters that are in no photo: {', '.join(extra)[:200]}"


@pytest.mark.cap("wrong_flat_charged")
def check_repair_not_elsewhere(evidence):
    if not results_exist(evidence, "bills.json"):
        return
    flat = evidence.reference_json("answers.json")["repair_flat"]
    charged = [f for f, bill in bills_by_flat(evidence).items() if (number(bill.get("repair")) or 0) > 0 and f != flat]
    assert not charged, f"the repair is charged to {', '.join(charged)[:100]}"


@pytest.mark.cap("sums_do_not_add_up")
def check_sums(evidence):
    if not results_exist(evidence, "bills.json"):
        return
    bills = bills_by_flat(evidence)
    for flat, bill in bills.items():
        items = [number(bill.get(item)) for item in ("water", "electricity", "repair")]
        assert None not in items, f"flat {flat[:20]}: an item is not a number"
        assert near(bill.get("total"), sum(items), 0.02), f"flat {flat[:20]}: {bill.get('total')!r} is not the sum"
    total = sum(number(bill["total"]) for bill in bills.values())
    grand = bills_document(evidence).get("total")
    assert near(grand, total, 0.02), f"the grand total {grand!r} is not the sum of the flats, {total:.2f}"
