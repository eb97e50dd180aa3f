"""Checks of the final account: the table of packages and the memo."""

import re
from decimal import Decimal, InvalidOperation

import pytest

TABLE, MEMO = "final_account.csv", "memo.md"
BY_DEED = {"WP09", "WP10"}  # whoever stops at deed 1 gets the certificate's sums here without having copied them
# The last but one is a number alone in its place, as in "CO-01: 12400, …": no year, no day, no number of a quotation.
AMOUNT = re.compile(r"""
    [-−]?£?[-−]?\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?
    | [-−]?£?[-−]?\d+\.\d{2}(?!\d)
    | [-−]?£\s?[-−]?\d+(?:\.\d)?(?![.,]?\d)
    | (?:^|(?<=[:|,;=(+/&–—])|(?<=[:|,;=(+/&–—-]\s)|(?<=amount\s))
      [-−]?(?!(?:19|20)\d\d(?!\d))\d{4,7}(?![\w/-]|[.,]\d)
    | (?<![\w.-])0(?![\w.])""", re.VERBOSE)


def clean(value):
    return " ".join(str(value if value is not None else "").replace("\ufeff", "").split())


def money(value):
    text = clean(value).replace("−", "-").replace("£", "").replace(",", "").replace(" ", "")
    text = f"-{text[1:-1]}" if re.fullmatch(r"\(.+\)", text) else text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def same(value, expected):
    number = money(value)
    return number is not None and abs(number - Decimal(str(expected))) <= Decimal("0.005")


def table(evidence):
    """Delivered rows by package; a package that stands twice is left out."""
    found, doubled = {}, set()
    for raw in evidence.csv(TABLE):
        row = {clean(key).lower().replace(" ", "_"): clean(cell) for key, cell in raw.items() if key is not None}
        match = re.fullmatch(r"WP[\s-]?(\d{1,2})\b.*", row.get("package", "").upper())
        if match:
            name = f"WP{int(match.group(1)):02d}"
            doubled |= {name} & found.keys()
            found[name] = row
    assert found, f"{TABLE} has no row for a package"
    return {name: row for name, row in found.items() if name not in doubled}


def share(evidence, what, right):
    """Award the share of the expected rows for which `right(found, expected)` holds."""
    found, rows = table(evidence), evidence.reference_json("answers.json")["account"]
    good = [row["package"] for row in rows if row["package"] in found and right(found[row["package"]], row)]
    assert good, f"none of the {len(rows)} {what} is right"
    wrong = ", ".join(row["package"] for row in rows if row["package"] not in good)
    told = f"{len(good)} of {len(rows)} {what} right" + (f"; wrong or missing: {wrong}" if wrong else "")
    evidence.award(len(good) / len(rows), told)


def same_day(value, expected):
    match = re.match(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", value)
    return match is not None and "{}-{:02d}-{:02d}".format(*map(int, match.groups())) == expected


@pytest.mark.checkpoint("C1")
def check_contract_sums(evidence):
    share(evidence, "contract sums", lambda found, row: same(found.get("contract_sum"), row["contract_sum"]))


@pytest.mark.checkpoint("C2")
def check_changes(evidence):
    share(evidence, "pairs of changes and final sum", lambda found, row: all(
        same(found.get(name), row[name]) for name in ("changes", "final_sum")))


@pytest.mark.checkpoint("C3")
def check_due_dates(evidence):
    share(evidence, "due dates", lambda found, row: same_day(found.get("due", ""), row["due"]))


@pytest.mark.checkpoint("C4")
def check_completion(evidence):
    share(evidence, "completion dates", lambda found, row: same_day(found.get("completed", ""), row["completed"]))


@pytest.mark.checkpoint("C5")
def check_damages(evidence):
    share(evidence, "pairs of days late and damages", lambda found, row: all(
        same(found.get(name), row[name]) for name in ("days_late", "damages")))


@pytest.mark.checkpoint("C6")
def check_retention(evidence):
    share(evidence, "sums of retention", lambda found, row: same(found.get("retention"), row["retention"]))


@pytest.mark.checkpoint("C7")
def check_decisions(evidence):
    lines, good = evidence.text(MEMO).splitlines(), []
    decisions = evidence.reference_json("answers.json")["changes"]
    for number, decision in decisions.items():
        for line in lines:
            tail = own_line(line, number)
            if tail is not None and decided(tail, decision):
                good.append(number)
                break
    assert good, "no change order stands in the memo with the right amount and the file that decides it"
    wrong = ", ".join(number for number in decisions if number not in good)
    told = f"{len(good)} of {len(decisions)} change orders right" + (f"; wrong or missing: {wrong}" if wrong else "")
    evidence.award(len(good) / len(decisions), told)


def own_line(line, number):
    """What follows the number on a line whose first change order is this one, else None."""
    match = re.search(r"\bCO[\s-]?(\d{1,2})\b(?:\W{0,3}rev(?:ision)?\W{0,3}B)?", line, re.IGNORECASE)
    return line[match.end():] if match and f"CO-{int(match.group(1)):02d}" == number else None


def decided(tail, decision):
    """True when the line names the amount (or its two parts) first and one of the deciding files."""
    text = clean(re.sub(r"\d{4}-\d{2}-\d{2}|[\w/-]+\.md|[*`]", " ", tail))
    amounts = [abs(money(found) or Decimal(0)) for found in AMOUNT.findall(text)]
    want = abs(Decimal(decision["amount"]))
    stems = [name.removesuffix(".md").lower() for name in decision["decided_by"]]
    return bool(amounts) and want in {amounts[0], sum(amounts[:2])} and any(
        re.search(rf"(?<![\w-]){re.escape(stem)}(?![\w-])", tail.lower()) for stem in stems)


@pytest.mark.cap("incomplete_table")
def check_all_packages(evidence):
    if evidence.exists(TABLE):
        missing = [row["package"] for row in evidence.reference_json("answers.json")["account"]
                   if row["package"] not in table(evidence)]
        assert not missing, f"missing or doubled: {', '.join(missing)}"


@pytest.mark.cap("certificate_values")
def check_not_from_certificates(evidence):
    if evidence.exists(TABLE):
        found, answers = table(evidence), evidence.reference_json("answers.json")
        copied = [row["package"] for row in answers["account"] if row["package"] in found.keys() - BY_DEED
                  and not same(answers["last_certificate"][row["package"]], row["final_sum"])
                  and same(found[row["package"]].get("final_sum"), answers["last_certificate"][row["package"]])]
        assert len(copied) < 3, f"final sums of the last certificate: {', '.join(copied)}"
