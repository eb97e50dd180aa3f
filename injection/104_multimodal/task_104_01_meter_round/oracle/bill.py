"""Turn what the photos show into readings.csv, bills.json and note.md."""

import csv
import json
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

# IMG_2041 (serial, tag, reading), IMG_2042 (tag -> flat), IMG_2043 (price, swap, empty flat), IMG_2044, IMG_2045.
METERS = {"W-58213": ("green", "418.627"), "W-58240": ("yellow", "1207.064"), "W-58177": ("red", "893.350"),
          "W-60992": ("blue", "12.418")}
FLAT = {"blue": "2A", "green": "2B", "yellow": "1A", "red": "1B"}
PRICE, KWH, EMPTY = Decimal("2.35"), Decimal("0.31"), "1B"
SWAP = {"W-60992": ("W-58198", Decimal("645.118"), Decimal("0.004"))}
STAIRS, REPAIR = ("E-0417", Decimal(5486)), ("2A", Decimal("74.98"))
NOTE = """# October meter round

Odd this month
- Flat 1B is empty but used 5.205 m3 of water: please look for a leak. Its water is billed to the landlord.

Corrected on the way
- The blue meter (2A) was swapped on 9 October, so W-58198 and W-60992 are added up: 4.345 + 12.414 m3.
- The receipt's printed 79.98 is crossed out; I used the handwritten 74.98, billed to 2A.
- The struck-out water price and "split the plumber" on the whiteboard were left aside.

Taken from handwriting, please check: price 2.35, old meter off at 645.118, new meter on at 0.004, 74.98 paid.
"""


def pennies(value):
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


def main(sources, results):
    with (sources / "last_readings.csv").open(encoding="utf-8", newline="") as handle:
        last = {row["meter"]: Decimal(row["reading"]) for row in csv.DictReader(handle)}
    rows, bills = [], {flat: {"flat": flat, "bill_to": "tenant"} for flat in sorted(FLAT.values())}
    let = [flat for flat in bills if flat != EMPTY]
    share = pennies((STAIRS[1] - last[STAIRS[0]]) * KWH / len(let))
    for meter, (tag, shown) in METERS.items():
        reading = Decimal(shown)
        if meter in SWAP:
            old, off, on = SWAP[meter]
            used = off - last[old] + reading - on
        else:
            used = reading - last[meter]
        rows.append((meter, FLAT[tag], shown, f"{used:.3f}"))
        bill = bills[FLAT[tag]]
        items = {"water": pennies(used * PRICE), "electricity": share if FLAT[tag] in let else Decimal(0),
                 "repair": REPAIR[1] if FLAT[tag] == REPAIR[0] else Decimal(0)}
        bill.update({name: float(value) for name, value in items.items()}, total=float(sum(items.values())))
    bills[EMPTY]["bill_to"] = "landlord"
    rows.append((STAIRS[0], "stairs", str(STAIRS[1]), str(STAIRS[1] - last[STAIRS[0]])))
    results.mkdir(parents=True, exist_ok=True)
    with (results / "readings.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([("meter", "flat", "reading", "used"), *rows])
    total = round(sum(bill["total"] for bill in bills.values()), 2)
    document = {"bills": list(bills.values()), "total": total}
    (results / "bills.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (results / "note.md").write_text(NOTE, encoding="utf-8")


main(Path(sys.argv[1]), Path(sys.argv[2]))
