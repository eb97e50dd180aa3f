#!/usr/bin/env bash
# Works the account out of the documents; every decision is tied to a passage that must be found in the named file.
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
