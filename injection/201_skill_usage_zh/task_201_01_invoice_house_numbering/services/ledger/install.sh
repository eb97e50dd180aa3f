#!/usr/bin/env bash
# 为经办人解出当月委托台账；运行后只留下数据库本身。
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
inbox=/tmp_workspace/inbox
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

python3 - "$here/ledger.sql" "$scratch/weituo.db" <<'PY'
import sqlite3
import sys
from pathlib import Path

script, target = sys.argv[1:]
database = sqlite3.connect(target)
database.executescript(Path(script).read_text(encoding="utf-8"))
database.commit()
rows = database.execute("SELECT count(*) FROM weituo").fetchone()[0]
database.close()
print(f"台账已解出，共 {rows} 份委托单")
PY

mkdir -p "$inbox"
install -m 0644 "$scratch/weituo.db" "$inbox/weituo.db"
# 有 agent 账户时归其所有；没有时台账保持所有人可读。
if [ "$(id -u)" = 0 ] && id -u agent >/dev/null 2>&1; then
  chown -R agent: "$inbox"
fi
