"""按规程完成五月结算。"""

import csv
import json
import sqlite3
import subprocess
import sys
import unicodedata
from collections import defaultdict
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from pathlib import Path

MONTH, MONTH_END = "2026-05", "2026-05-31"
LEDGER = "file:/tmp_workspace/inbox/weituo.db?mode=ro"
RESULTS = Path("/tmp_workspace/results")
HELPER = Path.home() / "skills/yuedu-jiesuan/scripts/danhao.py"
FEN, JIAO, YUAN = Decimal("0.01"), Decimal("0.1"), Decimal("1")
DISCOUNT = {"甲": Decimal("0.88"), "乙": Decimal("0.95"), "丙": Decimal("1")}


def order_fee(ledger: sqlite3.Connection, order: sqlite3.Row) -> Decimal:
    core = extra = Decimal(0)
    for line in ledger.execute("SELECT * FROM mingxi WHERE weituo_no = ?", (order["weituo_no"],)):
        value, kind = line["shuliang"] * Decimal(line["danjia"]), line["leibie"]
        if kind in ("上门", "耗材"):
            extra += value.quantize(JIAO, ROUND_HALF_EVEN)
            continue
        if order["jiaji"]:
            value *= Decimal("1.2")
        if kind != "检定":
            value *= DISCOUNT[order["dengji"]]
        core += value.quantize(JIAO, ROUND_HALF_EVEN)
    return max(core, Decimal(150)) + extra


def hold_code(order: sqlite3.Row, disputed: set[str]) -> str:
    if order["xu_huiqian"] and not order["yi_huiqian"]:
        return "Z1"
    if not (order["zhengshu_no"] or "").strip():
        return "Z2"
    return "Z3" if order["weituo_no"] in disputed else ""


def sequence(ledger: sqlite3.Connection):
    void = {row["xuhao"] for row in ledger.execute("SELECT xuhao FROM zuofei WHERE xilie = 'HZ'")}
    number = ledger.execute("SELECT mo_xuhao FROM haoben WHERE xilie = 'HZ'").fetchone()["mo_xuhao"]
    while True:
        number += 1
        if number not in void and number % 10 != 4:
            yield number


def reference(number: int, customer: str) -> str:
    command = [sys.executable, str(HELPER), "--yuefen", MONTH, "--xuhao", str(number), "--kehu", customer]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def split(ledger: sqlite3.Connection):
    """把进入本期的委托单分成待开单的各组与暂缓清单。"""
    disputed = {row["weituo_no"] for row in ledger.execute("SELECT weituo_no FROM yiyi WHERE guanbi_riqi IS NULL")}
    groups, held = defaultdict(list), []
    for order in ledger.execute(
            "SELECT * FROM weituo JOIN kehu USING (kehu_no) WHERE zhuangtai = '已出证' AND chuzheng_riqi <= ? "
            "AND coalesce(jiesuan_no, '') = '' ORDER BY weituo_no", (MONTH_END,)):
        code = hold_code(order, disputed)
        contract = unicodedata.normalize("NFKC", order["hetong_no"] or "").strip().upper()
        if code:
            held.append([order["weituo_no"], order["kehu_no"], code])
        else:
            groups[order["kehu_no"], contract].append(order)
    return groups, held


def main() -> None:
    ledger = sqlite3.connect(LEDGER, uri=True)
    ledger.row_factory = sqlite3.Row
    groups, held = split(ledger)
    balance = {row["kehu_no"]: Decimal(row["yue"]) for row in ledger.execute("SELECT * FROM yucun")}
    numbers, register = sequence(ledger), []
    for customer, contract in sorted(groups, key=lambda key: (key[0], key[1] == "", key[1])):
        orders = groups[customer, contract]
        fee = sum(order_fee(ledger, order) for order in orders).quantize(FEN)
        tax = (fee * Decimal("0.06")).quantize(FEN, ROUND_HALF_UP)
        used = min(balance.get(customer, Decimal(0)), (fee + tax) * Decimal("0.6")).quantize(YUAN, ROUND_DOWN)
        balance[customer] = balance.get(customer, Decimal(0)) - used
        names = ";".join(order["weituo_no"] for order in orders)
        register.append([reference(next(numbers), customer), customer, contract or "无", names,
                         fee, tax, used.quantize(FEN), fee + tax - used])
    write(register, held, next(numbers), balance)


def write(register, held, next_number, balance) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "结算单台账.csv").open("w", newline="", encoding="utf-8") as out:
        heading = ["结算单号", "客户编号", "合同号", "委托单号", "服务费", "税额", "抵扣", "应收"]
        csv.writer(out).writerows([heading, *register])
    with (RESULTS / "暂缓清单.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["委托单号", "客户编号", "暂缓代码"], *held])
    fee, tax, used, due = (str(sum(row[column] for row in register)) for column in range(4, 8))
    handover = {
        "月份": MONTH, "结算单数": len(register), "服务费合计": fee, "税额合计": tax, "抵扣合计": used, "应收合计": due,
        "首号": register[0][0], "末号": register[-1][0], "下期起始序号": next_number,
        "预存余额": {customer: str(left) for customer, left in sorted(balance.items()) if left},
    }
    text = json.dumps(handover, ensure_ascii=False, indent=2)
    (RESULTS / "交接.json").write_text(text + "\n", encoding="utf-8")


main()
