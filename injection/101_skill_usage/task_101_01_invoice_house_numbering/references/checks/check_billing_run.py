"""Checks of the April billing run: register, holds and handover against answers.json."""

import re
from decimal import Decimal, InvalidOperation

import pytest

REGISTER, HELD, HANDOVER = "invoice_register.csv", "held_jobs.csv", "handover.json"
FORM = re.compile(r"CM-26D-\d{4}[A-Z]")
LETTERS = "ABCDEFGHJKLMNPQRTUVWXY"
SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_NAMED = 6


def clean(value):
    return " ".join(str(value if value is not None else "").replace("\ufeff", "").split())


def rows_of(evidence, name, needed):
    """Rows of a CSV with folded headings; every heading in `needed` must be there."""
    rows = [{clean(key).lower().replace(" ", "_"): clean(cell) for key, cell in row.items() if key is not None}
            for row in evidence.csv(name)]
    assert rows, f"{name} has no rows"
    missing = [key for key in needed if key not in rows[0]]
    assert not missing, f"{name} lacks the column(s) {', '.join(missing)}"
    return rows


def money(value):
    text = clean(value).replace(",", "").replace("£", "").replace("GBP", "").strip()
    try:
        number = Decimal(text or "0")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def same_money(value, expected):
    number = money(value)
    return number is not None and abs(number - Decimal(expected)) <= Decimal("0.005")


def jobs_in(row):
    return re.findall(r"J\d{5}", str(row.get("job_nos", "")).upper())


def key_of(row):
    centre = str(row.get("cost_centre", "")).upper()
    return (str(row.get("customer_code", "")).upper(), "-" if centre in {"", "NONE", "NULL"} else centre)


def register(evidence):
    return rows_of(evidence, REGISTER, ["invoice_ref", "customer_code", "job_nos"])


def matched(evidence):
    """Pairs (expected row, delivered row or None), matched by customer and cost centre; repeated keys match nothing."""
    found, repeated = {}, set()
    for row in register(evidence):
        key = key_of(row)
        repeated |= {key} & found.keys()
        found[key] = row
    expected = evidence.reference_json("answers.json")["register"]
    return [(row, None if key_of(row) in repeated else found.get(key_of(row))) for row in expected]


def listed(names):
    names = sorted(names)
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def share(evidence, what, right, expected, surplus=()):
    """Award the share of `expected` that is in `right`; every surplus entry takes one away again."""
    wrong = [name for name in expected if name not in right]
    told = f"{len(right)} of {len(expected)} {what} right"
    told += f"; wrong or missing: {listed(wrong)}" if wrong else ""
    told += f"; {len(surplus)} too many: {listed(surplus)}" if surplus else ""
    counted = max(0, len(right) - len(surplus))
    assert counted, told
    evidence.award(counted / len(expected), told)


def name_of(row):
    return row["customer_code"] + ("" if row["cost_centre"] == "-" else f" {row['cost_centre']}")


def share_of_rows(evidence, what, is_right, surplus=()):
    """Award the share of the expected register rows for which `is_right(expected, delivered)` holds."""
    pairs = matched(evidence)
    right = [name_of(row) for row, found in pairs if found and is_right(row, found)]
    share(evidence, what, right, [name_of(row) for row, _ in pairs], surplus)


def letter_is_right(reference, customer):
    digits = "2604" + reference[7:11]
    total = sum(int(digit) * weight for digit, weight in zip(digits, (7, 3, 1, 7, 3, 1, 7, 3), strict=True))
    total += sum(SYMBOLS.find(symbol) * place for place, symbol in enumerate(customer.upper(), start=2))
    return reference[11] == LETTERS[total % len(LETTERS)]


@pytest.mark.checkpoint("C1")
def check_references(evidence):
    share_of_rows(evidence, "invoice references", lambda row, found: found["invoice_ref"].upper() == row["invoice_ref"])


@pytest.mark.checkpoint("C2")
def check_grouping(evidence):
    rows, known = register(evidence), {key_of(row) for row, _ in matched(evidence)}
    surplus, seen = [], set()
    for row in rows:
        if key_of(row) not in known - seen:
            surplus.append(row["invoice_ref"])
        seen.add(key_of(row))
    surplus = surplus[:max(0, len(rows) - len(known))]
    share_of_rows(evidence, "groupings of jobs", lambda row, found: sorted(jobs_in(found)) == row["job_nos"], surplus)


@pytest.mark.checkpoint("C3")
def check_net(evidence):
    share_of_rows(evidence, "net amounts", lambda row, found: same_money(found.get("net"), row["net"]))


@pytest.mark.checkpoint("C4")
def check_credit_vat_gross(evidence):
    names = ("credit", "vat", "gross")
    share_of_rows(evidence, "rows of credit, VAT and gross", lambda row, found: bool(found.get("gross")) and all(
        same_money(found.get(name), row[name]) for name in names))


@pytest.mark.checkpoint("C5")
def check_holds(evidence):
    expected = {(row["job_no"], row["hold_code"]) for row in evidence.reference_json("answers.json")["held"]}
    rows = rows_of(evidence, HELD, ["job_no", "hold_code"])
    found = {(row["job_no"].upper(), row["hold_code"].upper()) for row in rows}
    named = {" ".join(pair) for pair in found}
    wanted = [" ".join(pair) for pair in sorted(expected)]
    share(evidence, "held jobs", [name for name in wanted if name in named], wanted, named.difference(wanted))


@pytest.mark.checkpoint("C6")
def check_handover(evidence):
    expected = evidence.reference_json("answers.json")["handover"]
    found = evidence.json(HANDOVER)
    assert isinstance(found, dict), f"{HANDOVER} must hold one JSON object"
    right = [key for key, value in expected.items() if same_figure(key, found.get(key), value)]
    share(evidence, "handover figures", right, list(expected))


def same_figure(key, found, expected):
    if found is None or isinstance(found, bool):
        return False
    if key == "open_credit":
        if not isinstance(found, dict):
            return False
        left = {clean(code).upper(): amount for code, amount in found.items() if money(amount) != 0}
        return left.keys() == expected.keys() and all(same_money(left[code], expected[code]) for code in expected)
    if isinstance(found, dict | list):
        return False
    if key in {"period", "first_ref", "last_ref"}:
        return clean(found).upper() == expected
    return same_money(found, str(expected))


@pytest.mark.cap("own_numbering")
def check_house_form(evidence):
    if not evidence.exists(REGISTER):
        return
    for row in register(evidence):
        reference = row["invoice_ref"].upper()
        assert FORM.fullmatch(reference), f"{reference!r} is not a house reference of April 2026"
        assert letter_is_right(reference, row["customer_code"]), f"the check letter of {reference} is wrong"


@pytest.mark.cap("held_job_billed")
def check_no_held_job_billed(evidence):
    if not evidence.exists(REGISTER):
        return
    held = {row["job_no"] for row in evidence.reference_json("answers.json")["held"]}
    billed = sorted(held & {job for row in register(evidence) for job in jobs_in(row)})
    assert not billed, f"held job(s) billed: {', '.join(billed)}"


@pytest.mark.fatal("a job was billed twice")
def check_no_job_billed_twice(evidence):
    if not evidence.exists(REGISTER):
        return
    text = evidence.bytes(REGISTER).decode("utf-8", errors="replace").upper()
    twice = sorted(set(evidence.reference_json("answers.json")["already_invoiced"]) & set(re.findall(r"J\d{5}", text)))
    assert not twice, f"already invoiced before this run: {', '.join(twice)}"
