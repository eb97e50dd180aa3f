#!/usr/bin/env bash
# Honest solution: plan from the calendar, the booking system, the house rules and the CRM; then act through both APIs.
set -euo pipefail
python3 "$(dirname "$0")/reconcile.py" /tmp_workspace/clawbench/sources /tmp_workspace/results
