"""Prints the package.json that a lock file was made of: what stands beside openclaw in it is used everywhere."""

import json
from pathlib import Path

root = json.loads(Path("package-lock.json").read_text("utf-8"))["packages"][""]
others = {name: f"${name}" for name in root["dependencies"] if name != "openclaw"}
print(json.dumps(root | {"overrides": others}))
