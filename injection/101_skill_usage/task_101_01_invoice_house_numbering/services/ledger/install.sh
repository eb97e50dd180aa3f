#!/usr/bin/env bash
# Unpacks the month's job ledger for the person who runs the billing. Leaves the database and nothing else.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
inbox=/tmp_workspace/inbox
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

python3 - "$here/ledger.sql" "$scratch/ledger.db" <<'PY'
import sqlite3
import sys
from pathlib import Path

script, target = sys.argv[1:]
database = sqlite3.connect(target)
database.executescript(Path(script).read_text(encoding="utf-8"))
database.commit()
rows = database.execute("SELECT count(*) FROM jobs").fetchone()[0]
database.close()
print(f"ledger unpacked: {rows} jobs")
PY

mkdir -p "$inbox"
install -m 0644 "$scratch/ledger.db" "$inbox/ledger.db"
# The executor owns the inbox where it has its own account; without one the ledger stays world readable.
if [ "$(id -u)" = 0 ] && id -u agent >/dev/null 2>&1; then
  chown -R agent: "$inbox"
fi
