"""五月结算的检查：台账、暂缓清单和交接与 answers.json 比对。"""

import re
import unicodedata
from decimal import Decimal, InvalidOperation

import pytest

REGISTER, HELD, HANDOVER = "结算单台账.csv", "暂缓清单.csv", "交接.json"
FORM = re.compile(r"HZ202605-\d{3}-[0-9X]")
MOST_NAMED = 6


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


def listed(names):
    names = sorted(names)
    return "、".join(names[:MOST_NAMED]) + (f"等 {len(names)} 项" if len(names) > MOST_NAMED else "")


def share(evidence, what, right, expected, surplus=()):
    """按 `expected` 中正确的比例给分；每多列一项抵消一项。`what` 以量词开头。"""
    wrong = [name for name in expected if name not in right]
    told = f"{len(expected)} {what}中 {len(right)} {what[0]}正确"
    told += f"；错误或缺少：{listed(wrong)}" if wrong else ""
    told += f"；多出 {len(surplus)} 项：{listed(surplus)}" if surplus else ""
    counted = max(0, len(right) - len(surplus))
    assert counted, told
    evidence.award(counted / len(expected), told)


def name_of(row):
    return row["客户编号"] + ("（无合同号）" if row["合同号"] == "无" else f" {row['合同号']}")


def share_of_rows(evidence, what, is_right, surplus=()):
    """按满足 `is_right(应有行, 交付行)` 的应有行的比例给分。"""
    pairs = matched(evidence)
    right = [name_of(row) for row, found in pairs if found and is_right(row, found)]
    share(evidence, what, right, [name_of(row) for row, _ in pairs], surplus)


def mark_is_right(number, customer):
    digits = "202605" + number[9:12]
    total = sum(int(digit) * weight for digit, weight in zip(digits, (7, 9, 10, 5, 8, 4, 2, 1, 6), strict=True))
    total += sum(ord(symbol) * 3 for symbol in customer if symbol.isalpha())
    tail = re.search(r"\d{3}$", customer)
    return tail is not None and number[-1] == "10X98765432"[(total + int(tail.group()) * 7) % 11]


@pytest.mark.checkpoint("C1")
def check_numbers(evidence):
    share_of_rows(evidence, "个结算单号", lambda row, found: found["结算单号"].upper() == row["结算单号"])


@pytest.mark.checkpoint("C2")
def check_scope(evidence):
    rows, known = register(evidence), {key_of(row) for row, _ in matched(evidence)}
    surplus, seen = [], set()
    for row in rows:
        if key_of(row) not in known - seen:
            surplus.append(row["结算单号"])
        seen.add(key_of(row))
    surplus = surplus[:max(0, len(rows) - len(known))]
    share_of_rows(evidence, "张结算单的委托单范围",
                  lambda row, found: sorted(orders_in(found)) == row["委托单号"], surplus)


@pytest.mark.checkpoint("C3")
def check_fee(evidence):
    share_of_rows(evidence, "张结算单的服务费", lambda row, found: same_money(found.get("服务费"), row["服务费"]))


@pytest.mark.checkpoint("C4")
def check_tax_and_due(evidence):
    names = ("税额", "抵扣", "应收")
    share_of_rows(evidence, "张结算单的税额、抵扣与应收", lambda row, found: bool(found.get("应收")) and all(
        same_money(found.get(name), row[name]) for name in names))


@pytest.mark.checkpoint("C5")
def check_holds(evidence):
    expected = {(row["委托单号"], row["暂缓代码"]) for row in evidence.reference_json("answers.json")["暂缓"]}
    rows = rows_of(evidence, HELD, ["委托单号", "暂缓代码"])
    found = {(row["委托单号"].upper(), row["暂缓代码"].upper()) for row in rows}
    named = {" ".join(pair) for pair in found}
    wanted = [" ".join(pair) for pair in sorted(expected)]
    share(evidence, "份暂缓委托单", [name for name in wanted if name in named], wanted, named.difference(wanted))


@pytest.mark.checkpoint("C6")
def check_handover(evidence):
    expected = evidence.reference_json("answers.json")["交接"]
    found = evidence.json(HANDOVER)
    assert isinstance(found, dict), f"{HANDOVER} 应为一个 JSON 对象"
    right = [key for key, value in expected.items() if same_figure(key, found.get(key), value)]
    share(evidence, "项交接数据", right, list(expected))


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
