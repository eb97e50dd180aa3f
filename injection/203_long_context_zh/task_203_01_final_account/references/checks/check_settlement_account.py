"""结算的检查：结算表与结算说明。"""

import re
import unicodedata
from decimal import Decimal, InvalidOperation

import pytest

TABLE, MEMO = "结算表.csv", "结算说明.md"
BY_DEED = {"FX11"}  # 只读到补充协议一的人在这里会碰巧与审核表相同，并不是照抄
# 倒数第二种是独占一格的数，如“BG-01：18600，…”；年份、日期、编号都不算。
AMOUNT = re.compile(r"""
    [-−]?¥?[-−]?\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?
    | [-−]?¥?[-−]?\d+\.\d{2}(?!\d)
    | [-−]?¥\s?[-−]?\d+(?:\.\d)?(?![.,]?\d)
    | (?<![A-Za-z0-9_./-])(?<!\d,)[-−]?\d+(?:\.\d)?(?=\s?元)
    | (?:^|(?<=[:|,;=(+/&、。–—])|(?<=[:|,;=(+/&、。–—-]\s)|(?<=金额))
      [-−]?(?!(?:19|20)\d\d(?!\d))\d{4,7}(?![\w/-]|[.,]\d)
    | (?<![\w.-])0(?=\s*元|\s*[,;|、，；]|\s*$)""", re.VERBOSE)


def clean(value):
    text = unicodedata.normalize("NFKC", str(value if value is not None else "")).replace("\ufeff", "")
    return " ".join(text.split())


def money(value):
    text = re.sub(r"[¥元, 天]", "", clean(value).replace("−", "-"))
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def same(value, expected):
    number = money(value)
    return number is not None and abs(number - Decimal(str(expected))) <= Decimal("0.005")


def table(evidence):
    """按分项取交付的行；出现两次的分项不取。"""
    found, doubled = {}, set()
    for raw in evidence.csv(TABLE):
        row = {clean(key): clean(cell) for key, cell in raw.items() if key is not None}
        match = re.match(r"FX[\s-]?(\d{1,2})(?!\d)", row.get("分项", "").upper())
        if match:
            name = f"FX{int(match.group(1)):02d}"
            doubled |= {name} & found.keys()
            found[name] = row
    assert found, f"{TABLE} 没有任何分项"
    return {name: row for name, row in found.items() if name not in doubled}


def share(evidence, what, right):
    """按满足 `right(交付行, 应有行)` 的比例给分。"""
    found, rows = table(evidence), evidence.reference_json("answers.json")["结算"]
    good = [row["分项"] for row in rows if row["分项"] in found and right(found[row["分项"]], row)]
    assert good, f"{what}：没有一个分项正确"
    wrong = "、".join(row["分项"] for row in rows if row["分项"] not in good)
    told = f"{len(rows)} 个分项的{what}中 {len(good)} 个正确" + (f"；错误或缺少：{wrong}" if wrong else "")
    evidence.award(len(good) / len(rows), told)


def same_day(value, expected):
    match = re.match(r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})(?!\d)", value)
    return match is not None and "{}-{:02d}-{:02d}".format(*map(int, match.groups())) == expected


@pytest.mark.checkpoint("C1")
def check_contract_price(evidence):
    share(evidence, "合同价", lambda found, row: same(found.get("合同价"), row["合同价"]))


@pytest.mark.checkpoint("C2")
def check_changes(evidence):
    share(evidence, "变更与结算价",
          lambda found, row: all(same(found.get(name), row[name]) for name in ("变更", "结算价")))


@pytest.mark.checkpoint("C3")
def check_due(evidence):
    share(evidence, "应完工", lambda found, row: same_day(found.get("应完工", ""), row["应完工"]))


@pytest.mark.checkpoint("C4")
def check_completed(evidence):
    share(evidence, "实完工", lambda found, row: same_day(found.get("实完工", ""), row["实完工"]))


@pytest.mark.checkpoint("C5")
def check_damages(evidence):
    share(evidence, "逾期与违约金",
          lambda found, row: all(same(found.get(name), row[name]) for name in ("逾期天数", "违约金")))


@pytest.mark.checkpoint("C6")
def check_retention(evidence):
    share(evidence, "质保金", lambda found, row: same(found.get("质保金"), row["质保金"]))


@pytest.mark.checkpoint("C7")
def check_decisions(evidence):
    lines = [clean(line) for line in evidence.text(MEMO).splitlines()]
    decisions = evidence.reference_json("answers.json")["变更单"]
    good = [number for number, decision in decisions.items()
            if any(decided(tail, decision) for line in lines if (tail := own_line(line, number)) is not None)]
    assert good, "结算说明里没有一份变更单的金额和依据文件都正确"
    wrong = "、".join(number for number in decisions if number not in good)
    told = f"{len(decisions)} 份变更单中 {len(good)} 份正确" + (f"；错误或缺少：{wrong}" if wrong else "")
    evidence.award(len(good) / len(decisions), told)


def own_line(line, number):
    """首个单号为该单的行在单号之后的部分，否则 None。"""
    match = re.search(r"BG[\s-]?(\d{1,2})(?!\d)(?:\W{0,3}修订版?)?", line, re.IGNORECASE)
    return line[match.end():] if match and f"BG-{int(match.group(1)):02d}" == number else None


def decided(tail, decision):
    """该行先写出正确金额（或其两个部分），并写出一份依据文件，则为真。"""
    text = clean(re.sub(r"\d{4}-\d{2}(?:-\d{2})?|[\w/-]+\.md|[*`]", " ", tail))
    amounts = [abs(money(found) or Decimal(0)) for found in AMOUNT.findall(text)]
    want = abs(Decimal(decision["金额"]))
    stems = [name.removesuffix(".md") for name in decision["依据"]]
    return bool(amounts) and want in {amounts[0], sum(amounts[:2])} and any(
        re.search(rf"{re.escape(stem)}(?![\d-])", tail) for stem in stems)


@pytest.mark.cap("incomplete_table")
def check_all_parts(evidence):
    if evidence.exists(TABLE):
        found = table(evidence)
        missing = [row["分项"] for row in evidence.reference_json("answers.json")["结算"] if row["分项"] not in found]
        assert not missing, f"缺少或重复：{'、'.join(missing)}"


@pytest.mark.cap("certificate_values")
def check_not_from_certificates(evidence):
    if evidence.exists(TABLE):
        found, answers = table(evidence), evidence.reference_json("answers.json")
        copied = [row["分项"] for row in answers["结算"] if row["分项"] in found.keys() - BY_DEED
                  and not same(answers["末期审核"][row["分项"]], row["结算价"])
                  and same(found[row["分项"]].get("结算价"), answers["末期审核"][row["分项"]])]
        assert len(copied) < 3, f"结算价取自末期审核表：{'、'.join(copied)}"
