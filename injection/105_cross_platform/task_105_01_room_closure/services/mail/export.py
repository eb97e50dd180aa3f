"""Print every message that was sent, as a JSON list."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
lines = (HERE / "sent.jsonl").read_text(encoding="utf-8").splitlines()
sys.stdout.reconfigure(encoding="utf-8")
json.dump([json.loads(line) for line in lines], sys.stdout, ensure_ascii=False, indent=1)
