#!/usr/bin/env bash
# 由资料推出结算；每一条决定都对应一段必须在所指文件中找得到的原文。
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
