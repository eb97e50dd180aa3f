"""Print the verdicts of a run, a JSON line per turn, so that two runs can be compared byte for byte."""

import json
import sys
from pathlib import Path

for path in sorted(Path(sys.argv[1]).glob("a*/*/*/*/*/p1-*/uniclaw.json")):
    for turn in json.loads(path.read_bytes())["turns"]:
        told = {name: turn[name] for name in ("verdict", "handoff", "follow_up")}
        sys.stdout.write(json.dumps(told) + "\n")
