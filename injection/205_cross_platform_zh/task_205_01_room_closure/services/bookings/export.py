"""Print the state of the booking service as JSON: rooms, bookings and the audit log."""

import json
import sqlite3
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def decoded(row):
    """A row as a dict, with the columns that hold JSON parsed."""
    return {k: json.loads(v) if k in {"has", "needs", "before", "after"} and v else v for k, v in dict(row).items()}


db = sqlite3.connect(f"file:{HERE / 'bookings.db'}?mode=ro", uri=True, timeout=10)
db.row_factory = sqlite3.Row
state = {}
for name, key in {"rooms": "id", "bookings": "id", "audit": "seq"}.items():
    state[name] = [decoded(row) for row in db.execute(f"SELECT * FROM {name} ORDER BY {key}")]
sys.stdout.reconfigure(encoding="utf-8")
json.dump(state, sys.stdout, ensure_ascii=False, indent=1)
