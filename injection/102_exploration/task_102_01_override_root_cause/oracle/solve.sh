#!/usr/bin/env bash
# Resolves the configuration as the loader does, counts duplicates in the logs and writes both deliverables.
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
