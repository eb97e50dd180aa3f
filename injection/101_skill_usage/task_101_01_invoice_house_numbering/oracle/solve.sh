#!/usr/bin/env bash
# Solves the task from the ledger and the skill, with the skill's own helper for the references.
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
