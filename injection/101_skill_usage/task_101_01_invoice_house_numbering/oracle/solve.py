"""April billing run, by the house procedure."""

import csv
import json
import sqlite3
import subprocess
import sys
from collections import defaultdict
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from pathlib import Path

MONTH, MONTH_END = "2026-04", "2026-04-30"
LEDGER = "file:/tmp_workspace/inbox/ledger.db?mode=ro"
RESULTS = Path("/tmp_workspace/results")
HELPER = Path.home() / "skills/billing-run/scripts/invoice_ref.py"
PENNY = Decimal("0.01")
TIER = {"A": Decimal("0.90"), "B": Decimal("0.95"), "C": Decimal("1")}


def down(value: Decimal) -> Decimal:
    return value.quantize(PENNY, ROUND_DOWN)


def hold_code(job: sqlite3.Row, disputed: set[str]) -> str:
    if job["po_required"] and not (job["po_number"] or "").strip():
        return "H1"
    if not (job["certificate_no"] or "").strip():
        return "H2"
    return "H3" if job["job_no"] in disputed else ""


def job_net(ledger: sqlite3.Connection, job: sqlite3.Row) -> Decimal:
    work = carriage = Decimal("0.00")
    for line in ledger.execute("SELECT * FROM job_lines WHERE job_no = ?", (job["job_no"],)):
        value = Decimal(line["qty"]) * Decimal(line["unit_price"])
        if job["rush"] and line["kind"] != "carriage":
            value *= Decimal("1.12")
        if line["kind"] in ("calibration", "labour"):
            value *= TIER[job["tier"]]
        value = value.quantize(PENNY, ROUND_HALF_EVEN)
        if line["kind"] == "carriage":
            carriage += value
        else:
            work += value
    return max(work, Decimal("48.00")) + carriage


def reference(seq: int, customer: str) -> str:
    command = [sys.executable, str(HELPER), "--month", MONTH, "--seq", str(seq), "--customer", customer]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def open_credit(ledger: sqlite3.Connection) -> dict[str, Decimal]:
    pool: dict[str, Decimal] = defaultdict(Decimal)
    for note in ledger.execute("SELECT * FROM credit_notes WHERE issued_on <= ?", (MONTH_END,)):
        pool[note["customer_code"]] += Decimal(note["amount"]) - Decimal(note["used"])
    return pool


def numbers(ledger: sqlite3.Connection):
    void = {row["seq"] for row in ledger.execute("SELECT seq FROM void_numbers WHERE series = 'CM'")}
    seq = ledger.execute("SELECT last_seq FROM number_book WHERE series = 'CM'").fetchone()["last_seq"]
    while True:
        seq += 1
        if seq not in void:
            yield seq


def sort_jobs(ledger: sqlite3.Connection):
    """Split the jobs that are up for billing into invoice groups and held jobs."""
    disputed = {row["job_no"] for row in ledger.execute("SELECT job_no FROM disputes WHERE closed_on IS NULL")}
    groups, held = defaultdict(list), []
    up = ledger.execute(
        "SELECT * FROM jobs JOIN customers ON code = customer_code WHERE status = 'released' AND released_on <= ? "
        "AND coalesce(invoice_ref, '') = '' ORDER BY job_no", (MONTH_END,))
    for job in up:
        code = hold_code(job, disputed)
        if code:
            held.append([job["job_no"], job["customer_code"], code])
        else:
            groups[job["customer_code"], (job["cost_centre"] or "").strip().upper()].append(job)
    return groups, held


def main() -> None:
    ledger = sqlite3.connect(LEDGER, uri=True)
    ledger.row_factory = sqlite3.Row
    groups, held = sort_jobs(ledger)
    pool, sequence, register = open_credit(ledger), numbers(ledger), []
    for customer, centre in sorted(groups, key=lambda key: (key[0], key[1] == "", key[1])):
        jobs = groups[customer, centre]
        net = sum(job_net(ledger, job) for job in jobs)
        credit = min(pool[customer], down(net / 2))
        pool[customer] -= credit
        vat = down((net - credit) * (Decimal("0.20") if jobs[0]["vat_code"] == "S" else 0))
        register.append([reference(next(sequence), customer), customer, centre or "-",
                         ";".join(job["job_no"] for job in jobs), net, down(credit), vat, down(net - credit + vat)])
    write(register, held, next(sequence), pool)


def write(register, held, next_seq, pool) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "invoice_register.csv").open("w", newline="", encoding="utf-8") as out:
        heading = ["invoice_ref", "customer_code", "cost_centre", "job_nos", "net", "credit", "vat", "gross"]
        csv.writer(out).writerows([heading, *register])
    with (RESULTS / "held_jobs.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["job_no", "customer_code", "hold_code"], *held])
    net, credit, vat, gross = (str(sum(row[column] for row in register)) for column in range(4, 8))
    handover = {
        "period": MONTH, "invoices": len(register), "net_total": net, "credit_total": credit, "vat_total": vat,
        "gross_total": gross, "first_ref": register[0][0], "last_ref": register[-1][0], "next_seq": next_seq,
        "open_credit": {code: str(left) for code, left in sorted(pool.items()) if left},
    }
    (RESULTS / "handover.json").write_text(json.dumps(handover, indent=2) + "\n", encoding="utf-8")


main()
