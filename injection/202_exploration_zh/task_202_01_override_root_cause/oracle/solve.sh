#!/usr/bin/env bash
# 按生效规则重算每一单的服务费，写出结论和报告。
set -euo pipefail
python3 "$(dirname "$0")/solve.py"
