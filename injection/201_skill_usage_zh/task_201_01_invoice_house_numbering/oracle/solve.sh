#!/usr/bin/env bash
# 依据台账和规程求解，单号由技能自带的脚本生成。
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
