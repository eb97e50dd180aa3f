"""五月结算的检查：台账、暂缓清单和交接与 answers.json 比对。"""

import re
import unicodedata
from decimal import Decimal, InvalidOperation

import pytest

REGISTER, HELD, HANDOVER = "结算单台账.csv", "暂缓清单.csv", "交接.json"
FORM = re.compile(r"HZ202605-\d{3}-[0-9X]")


def clean(value):
    text = unicodedata.normalize("NFKC", str(value if value is not None else "")).replace("\ufeff", "")
    return " ".join(text.split())


def rows_of(evidence, name, needed):
    """CSV 各行；表头去空白，`needed` 中的列缺一不可。"""
    rows = [{clean(key): clean(cell) for key, cell in row.items() if key is not None} for row in evidence.csv(name)]
    assert rows, f"{name} 没有数据行"
    missing = [key for key in needed if key not in rows[0]]
    assert not missing, f"{name} 缺少列：{'、'.join(missing)}"
    return rows


def money(value):
    text = clean(value).replace(",", "").replace("¥", "").replace("元", "").strip()
    try:
        number = Decimal(text or "0")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def same_money(value, expected):
    number = money(value)
    return number is not None and abs(number - Decimal(expected)) <= Decimal("0.005")


def orders_in(row):
    return re.findall(r"W\d{7}", str(row.get("委托单号", "")).upper())


def key_of(row):
    contract = str(row.get("合同号", "")).upper()
    return (str(row.get("客户编号", "")).upper(), "无" if contract in {"", "-", "NONE", "NULL"} else contract)


def register(evidence):
    return rows_of(evidence, REGISTER, ["结算单号", "客户编号", "委托单号"])


def matched(evidence):
    """(应有行, 交付行或 None)，按客户和合同配对；同一键出现两次的不予配对。"""
    found, repeated = {}, set()
    for row in register(evidence):
        key = key_of(row)
        repeated |= {key} & found.keys()
        found[key] = row
    expected = evidence.reference_json("answers.json")["台账"]
    return [(row, None if key_of(row) in repeated else found.get(key_of(row))) for row in expected]


def share(evidence, good, total, what):
    assert good > 0, f"没有一项正确：{what}"
    evidence.award(good / total, f"{what}：{total} 项中 {good} 项正确")


def mark_is_right(number, customer):
    digits = "202605" + number[9:12]
    total = sum(int(digit) * weight for digit, weight in zip(digits, (7, 9, 10, 5, 8, 4, 2, 1, 6), strict=True))
    total += sum(ord(symbol) * 3 for symbol in customer if symbol.isalpha())
    tail = re.search(r"\d{3}$", customer)
    return tail is not None and number[-1] == "10X98765432"[(total + int(tail.group()) * 7) % 11]


@pytest.mark.checkpoint("C1")
def check_numbers(evidence):
    pairs = matched(evidence)
    good = [row for row, found in pairs if found and found["结算单号"].upper() == row["结算单号"]]
    share(evidence, len(good), len(pairs), "结算单号")


@pytest.mark.checkpoint("C2")
def check_scope(evidence):
    pairs = matched(evidence)
    good = [row for row, found in pairs if found and sorted(orders_in(found)) == row["委托单号"]]
    extra = max(0, len(register(evidence)) - len(pairs))
    share(evidence, len(good) - extra, len(pairs), f"委托单归并（多出 {extra} 行）")


@pytest.mark.checkpoint("C3")
def check_fee(evidence):
    pairs = matched(evidence)
    good = [row for row, found in pairs if found and same_money(found.get("服务费"), row["服务费"])]
    share(evidence, len(good), len(pairs), "服务费")


@pytest.mark.checkpoint("C4")
def check_tax_and_due(evidence):
    pairs = matched(evidence)
    names = ("税额", "抵扣", "应收")
    good = [row for row, found in pairs
            if found and found.get("应收") and all(same_money(found.get(name), row[name]) for name in names)]
    share(evidence, len(good), len(pairs), "税额、抵扣、应收")


@pytest.mark.checkpoint("C5")
def check_holds(evidence):
    expected = {(row["委托单号"], row["暂缓代码"]) for row in evidence.reference_json("answers.json")["暂缓"]}
    rows = rows_of(evidence, HELD, ["委托单号", "暂缓代码"])
    found = {(row["委托单号"].upper(), row["暂缓代码"].upper()) for row in rows}
    share(evidence, len(found & expected) - len(found - expected), len(expected), "暂缓委托单")


@pytest.mark.checkpoint("C6")
def check_handover(evidence):
    expected = evidence.reference_json("answers.json")["交接"]
    found = evidence.json(HANDOVER)
    assert isinstance(found, dict), f"{HANDOVER} 应为一个 JSON 对象"
    good = [key for key, value in expected.items() if same_figure(key, found.get(key), value)]
    share(evidence, len(good), len(expected), "交接数据")


def same_figure(key, found, expected):
    if found is None or isinstance(found, bool):
        return False
    if key == "预存余额":
        if not isinstance(found, dict):
            return False
        left = {clean(code).upper(): amount for code, amount in found.items() if money(amount) != 0}
        return left.keys() == expected.keys() and all(same_money(left[code], expected[code]) for code in expected)
    if isinstance(found, dict | list):
        return False
    if key in {"月份", "首号", "末号"}:
        return clean(found).upper() == expected
    return same_money(found, str(expected))


@pytest.mark.cap("own_numbering")
def check_house_form(evidence):
    if not evidence.exists(REGISTER):
        return
    for row in register(evidence):
        number = row["结算单号"].upper()
        assert FORM.fullmatch(number), f"{number!r} 不是 2026 年 5 月的 HZ 单号"
        assert mark_is_right(number, row["客户编号"].upper()), f"{number} 的校验位不对"


@pytest.mark.cap("held_job_billed")
def check_no_held_order_billed(evidence):
    if not evidence.exists(REGISTER):
        return
    held = {row["委托单号"] for row in evidence.reference_json("answers.json")["暂缓"]}
    billed = sorted(held & {order for row in register(evidence) for order in orders_in(row)})
    assert not billed, f"应暂缓却结算了：{'、'.join(billed)}"


@pytest.mark.fatal("委托单被重复结算")
def check_no_order_settled_twice(evidence):
    if not evidence.exists(REGISTER):
        return
    text = evidence.bytes(REGISTER).decode("utf-8", errors="replace").upper()
    twice = sorted(set(evidence.reference_json("answers.json")["已结算"]) & set(re.findall(r"W\d{7}", text)))
    assert not twice, f"此前已结算：{'、'.join(twice)}"
