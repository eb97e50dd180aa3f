"""Final account of Harbour Street from the project folder."""

import csv
import re
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

PROJECT = Path("/tmp_workspace/clawbench/sources/project")
RESULTS = Path("/tmp_workspace/results")
PENNY = Decimal("0.01")
HEADING = ["package", "contract_sum", "changes", "final_sum", "due", "completed", "days_late", "damages", "retention"]

# change order -> (amount, extension in days or None for "as signed", deciding file, passage that decides, reason)
DECISIONS = {
    "CO-02": ("7325.00", None, "changes/CO-02-rev-B.md", "Revision B", "the revision replaces the first version, 5.4"),
    "CO-04": ("18540.00", None, "minutes/minutes-04.md", "£18,540.00", "agreed variation, as corrected at meeting 4"),
    "CO-05": ("0.00", 0, "changes/CO-05.md", "Contractor: ____", "not signed by the Contractor, 5.2"),
    "CO-06": ("15875.50", None, "diary/2025-04.md", "(CO-06), first floor band", "begun before it was withdrawn, 5.8"),
    "CO-07": ("0.00", 0, "letters/2025-05-14-pell-raymond.md", "We withdraw CO-07", "withdrawn before work began, 5.8"),
    "CO-08": ("9642.75", None, "minutes/minutes-07.md", "agreed at a total of £9,642.75", "daywork as agreed, 5.7"),
    "CO-09": ("0.00", 0, "changes/CO-12.md", "replaces CO-09 as a whole", "replaced, 5.4"),
    "CO-13": ("7700.00", 6, "contract/deed-2.md", "six days instead of ten", "amount as signed, six days by deed"),
    "CO-14": ("2286.00", None, "changes/CO-14.md", "two thousand two hundred and eighty-six", "words prevail, 5.3"),
}
SPLIT = {"CO-12": {"WP08": Decimal("10400.00"), "WP09": Decimal("5150.00")}}


def read(path: str) -> str:
    return (PROJECT / path).read_text(encoding="utf-8")


def amount(text: str) -> Decimal:
    return Decimal(text.replace("£", "").replace(",", ""))


def day(text: str) -> date:
    return datetime.strptime(f"{text} +0000", "%d %B %Y %z").date()


def packages() -> dict[str, dict]:
    """Document 02 as changed by the deeds."""
    found = {}
    for line in read("contract/02-work-packages.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"WP\d\d", cells[0]):
            found[cells[0]] = {"sum": amount(cells[2]), "due": day(cells[4]), "rate": amount(cells[5]),
                               "limit": Decimal("0.05"), "changes": Decimal(0)}
    assert "replaced by £15,500.00" in read("contract/deed-2.md")
    found["WP09"]["sum"] -= Decimal("15500.00")
    found["WP10"]["sum"] += Decimal("15500.00")
    found["WP04"]["due"] = day(re.search(r"WP04 is due on (\d+ \w+ \d+)", read("contract/deed-1.md"))[1])
    found["WP12"]["rate"] = amount(re.search(r"for WP12 is (£\d+)", read("contract/deed-1.md"))[1])
    for name in ("WP05", "WP09"):
        found[name]["limit"] = Decimal("0.04")
    return found


def field(text: str, name: str) -> str:
    return re.search(rf"^\| {name}[^|]*\| (?:limit )?([^|]+) \|$", text, re.MULTILINE)[1]


def apply_changes(account: dict[str, dict]) -> list[str]:
    """Add every change order that counts; return the lines of the memo."""
    lines = []
    for number in (f"CO-{index:02d}" for index in range(1, 15)):
        path = f"changes/{number}.md"
        reason, text = "as signed", read(path)
        value, days = amount(field(text, "Amount").replace("£-", "-")), None
        if number in DECISIONS:
            fixed, days, path, passage, reason = DECISIONS[number]
            assert passage in read(path), (path, passage)
            value, text = Decimal(fixed), read(path) if path.startswith("changes/") else text
        package = field(text, "Package")[:4]
        for name, part in SPLIT.get(number, {package: value}).items():
            account[name]["changes"] += part
        extension = re.match(r"\d+", field(text, "Effect"))
        days = int(extension[0]) if days is None and extension else days or 0
        account[package]["due"] += timedelta(days=days)
        lines.append(f"- {number}: {value:,.2f}, {path.rsplit('/', 1)[-1]}: {reason}")
    return lines


def completions() -> dict[str, date]:
    found, today = {}, None
    for path in sorted((PROJECT / "diary").glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                today = day(f"{line.split(' ', 2)[2]} 2025")
            match = re.match(r"- (WP\d\d): handed over .* accepted by the Clerk of Works", line)
            if match:
                found[match[1]] = today
    return found


def main() -> None:
    account, rows = packages(), []
    decisions, completed = apply_changes(account), completions()
    for name, package in account.items():
        final = package["sum"] + package["changes"]
        late = max(0, (completed[name] - package["due"]).days)
        damages = min(late * package["rate"], final * package["limit"]).quantize(PENNY, ROUND_HALF_UP)
        share = Decimal("0.015") if completed[name] <= date(2025, 5, 30) else Decimal("0.03")
        retention = (final * share).quantize(PENNY, ROUND_HALF_UP)
        rows.append([name, package["sum"], package["changes"].quantize(PENNY), final, package["due"], completed[name],
                     late, damages, retention])
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "final_account.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([HEADING, *rows])
    final, damages, retention = (sum(row[column] for row in rows) for column in (3, 7, 8))
    (RESULTS / "memo.md").write_text(f"""# Final account, Harbour Street Leisure Centre

Final sums {final:,.2f}; damages {damages:,.2f}; retention {retention:,.2f}.

## Change orders

{chr(10).join(decisions)}

## The contractor's letter of 14 July

The reduction of the rooflights was an agreed variation without a condition. Daywork replaces the limit. The unsigned
order has no effect, moving the drain or not. The first version of the asbestos order was replaced by its revision.
Refused handovers complete nothing, so the roof counts from 3 June and the electrical work from 23 July. The deed
prevails over any promise of ten days.
""", encoding="utf-8")


main()
