"""Checks of the October meter round in 桂花弄: what the photos show, against readings.csv, bills.json and note.md."""

import csv
import io
import json
import math
import re
import unicodedata

import pytest

WATER = ("LX-30417", "LX-30422", "LX-31850", "LX-30409")
FLATS = ("101", "102", "201", "202")
ITEMS = ("水费", "电费", "维修费")
NOTED = ("water used in the empty flat", "swapped meter", "corrected receipt")


def plain(value):
    """Half-width, trimmed text of any JSON or CSV value."""
    return unicodedata.normalize("NFKC", str(value if value is not None else "")).strip()


def decoded(evidence, name):
    """The text of a result file in UTF-8 (with or without a mark) or GB18030."""
    data = evidence.bytes(name)
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise AssertionError(f"{name} is not a text file")


def number(value):
    """A float from 83.47, "1,073.218吨", "￥52.02", "289 度"; None if there is no single number in it."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e15 and math.isfinite(value) else None
    text = re.sub(r"[元吨度¥￥]|m\s*3|立方米|kwh|,(?=\d{3}(\D|$))", "", plain(value).lower())
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*", text)
    return float(found.group(1)) if found and len(found.group(1)) < 16 else None


def near(value, target, tolerance):
    got = number(value)
    return got is not None and abs(got - target) <= tolerance + 1e-9


def flat_key(value):
    return re.sub(r"[室房号户\s]", "", plain(value))


def meter_key(value):
    return re.sub(r"[^0-9A-Z]", "", plain(value).upper())


def rows_by_meter(evidence):
    """{meter key: {column: value}} of readings.csv."""
    text = decoded(evidence, "readings.csv").replace("，", ",")
    try:
        rows = [{plain(k): plain(v) for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]
    except csv.Error as error:
        raise AssertionError(f"readings.csv is not a readable CSV: {error}") from None
    assert rows, "readings.csv has no rows"
    missing = {"表号", "房号", "读数", "用量"} - set(rows[0])
    assert not missing, f"readings.csv lacks the columns {sorted(missing)}"
    return {meter_key(row["表号"]): row for row in rows if row["表号"]}


def bills_document(evidence):
    try:
        document = json.loads(decoded(evidence, "bills.json"))
    except (ValueError, RecursionError):
        raise AssertionError("bills.json is not valid JSON") from None
    assert isinstance(document, dict), "bills.json is not an object"
    assert isinstance(document.get("账单"), list), "bills.json has no list 账单"
    return document


def bills_by_flat(evidence):
    """{flat: bill} for the entries of bills.json that are objects and name a flat."""
    entries = [bill for bill in bills_document(evidence)["账单"] if isinstance(bill, dict) and bill.get("房号")]
    assert entries, "bills.json has no entry with a 房号"
    return {flat_key(bill["房号"]): bill for bill in entries}


def tally(what, good, expected):
    missing = ", ".join(name for name in expected if name not in good)
    return f"{len(good)} of {len(expected)} {what} right" + (f"; wrong or missing: {missing}" if missing else "")


def named(pairs):
    return [f"{flat} {item}" for flat, item in pairs]


@pytest.mark.checkpoint("C1")
def check_water_readings(evidence):
    meters = evidence.reference_json("answers.json")["meters"]
    rows = rows_by_meter(evidence)
    right = [m for m in WATER if near(rows.get(meter_key(m), {}).get("读数"), meters[m]["reading"], 0.0005)]
    assert right, "no water meter is in readings.csv with the reading it shows"
    evidence.award(len(right) / len(WATER), tally("readings", right, WATER))


@pytest.mark.checkpoint("C2")
def check_flats_by_colour(evidence):
    meters = evidence.reference_json("answers.json")["meters"]
    rows = rows_by_meter(evidence)
    right = [m for m in WATER if flat_key(rows.get(meter_key(m), {}).get("房号")) == meters[m]["flat"]]
    assert len(right) >= 2, f"only {len(right)} of 4 water meters stand beside the flat with the dot of their colour"
    evidence.award(len(right) / len(WATER), tally("flats of water meters", right, WATER))


@pytest.mark.checkpoint("C3")
def check_consumption(evidence):
    answers = evidence.reference_json("answers.json")
    rows = rows_by_meter(evidence)
    share, right = 0.0, []
    for meter in WATER:
        if near(rows.get(meter_key(meter), {}).get("用量"), answers["meters"][meter]["used"], 0.0015):
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
    assert near(row["读数"], stairs["reading"], 0.5), f"the dials were read as {row['读数']!r}"
    used = near(row["用量"], stairs["used"], 0.5)
    evidence.award(1.0 if used else 0.6, "dials right, consumption " + ("right" if used else "wrong or missing"))


@pytest.mark.checkpoint("C5")
def check_water_and_electricity(evidence):
    expected = evidence.reference_json("answers.json")["bills"]
    bills = bills_by_flat(evidence)
    everything = [(flat, item) for flat in FLATS for item in ("水费", "电费")]
    right = [
        (flat, item) for flat, item in everything if near(bills.get(flat, {}).get(item), expected[flat][item], 0.01)
    ]
    paid = [pair for pair in right if expected[pair[0]][pair[1]] > 0]
    counted = right if len(paid) >= 4 else paid
    assert counted, "no 水费 or 电费 is right to the cent"
    share = sum(0.3 if pair == ("202", "水费") else 0.1 for pair in counted)
    told = tally("items", named(right), named(everything))
    told += "" if counted == right else "; items of 0 count only beside four others"
    evidence.award(min(round(share, 6), 1.0), told)


@pytest.mark.checkpoint("C6")
def check_repair_and_payers(evidence):
    answers = evidence.reference_json("answers.json")
    bills = bills_by_flat(evidence)
    flat = answers["repair_flat"]
    others = [f for f in FLATS if f != flat and (number(bills.get(f, {}).get("维修费")) or 0) > 0]
    assert not others, f"{', '.join(others)} are charged for a repair they did not have"
    paid = bills.get(flat, {}).get("维修费")
    printed, corrected = near(paid, 126, 0.005), near(paid, answers["bills"][flat]["维修费"], 0.005)
    assert printed or corrected, f"{flat} is charged {paid!r} for the repair"
    payers = all(answers["bills"][f]["payer"] in plain(bills.get(f, {}).get("付款人")) for f in FLATS)
    told = "repair charged as corrected by hand" if corrected else "repair charged as printed, not as corrected by hand"
    share = (0.7 if corrected else 0.3) + (0.3 if payers else 0.0)
    evidence.award(share, told + ("; payers right" if payers else "; a payer wrong or missing"))


@pytest.mark.checkpoint("C7")
def check_note(evidence):
    note = unicodedata.normalize("NFKC", decoded(evidence, "note.md"))
    length = len(re.sub(r"\s", "", note))
    assert length <= 330, f"note.md has {length} characters; at most 300 were asked for"
    empty = "201" in note and re.search(r"空|没人|无人|退租|漏", note)
    leak = bool(empty and re.search(r"漏|用水|走水|用量|6\.4|走了|用了", note))
    swap = bool(re.search(r"换|新表|旧表", note) and re.search(r"31850|30398|黄|202", note))
    receipt = bool(re.search(r"116|壹佰壹拾陆", note))
    told = [name for name, found in zip(NOTED, (leak, swap, receipt), strict=True) if found]
    assert told, "note.md names neither the water used in empty 201 nor the swapped meter nor the corrected receipt"
    evidence.award(len(told) / 3, tally("points of the note", told, NOTED))


@pytest.mark.cap("invented_meters")
def check_no_invented_meters(evidence):
    if "readings.csv" not in evidence.files():
        return
    answers = evidence.reference_json("answers.json")
    known = {meter_key(m) for m in WATER} | {meter_key(answers["stairs"]["meter"])}
    extra = sorted(set(rows_by_meter(evidence)) - known)
    assert not extra, f"readings.csv has meters that are in no photo: {', '.join(extra)[:200]}"


@pytest.mark.cap("wrong_flat_charged")
def check_repair_not_elsewhere(evidence):
    if "bills.json" not in evidence.files():
        return
    flat = evidence.reference_json("answers.json")["repair_flat"]
    charged = [f for f, bill in bills_by_flat(evidence).items() if (number(bill.get("维修费")) or 0) > 0 and f != flat]
    assert not charged, f"the repair is charged to {', '.join(charged)[:100]}"


@pytest.mark.cap("sums_do_not_add_up")
def check_sums(evidence):
    if "bills.json" not in evidence.files():
        return
    bills = bills_by_flat(evidence)
    for flat, bill in bills.items():
        items = [number(bill.get(item)) for item in ITEMS]
        assert None not in items, f"{flat[:20]}: an item is not a number"
        assert near(bill.get("合计"), sum(items), 0.02), f"{flat[:20]}: 合计 {bill.get('合计')!r} is not the sum"
    total = sum(number(bill["合计"]) for bill in bills.values())
    grand = bills_document(evidence).get("总计")
    assert near(grand, total, 0.02), f"总计 {grand!r} is not the sum of the flats, {total:.2f}"
