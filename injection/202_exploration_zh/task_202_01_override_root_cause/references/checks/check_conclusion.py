"""服务费少收排查的检查：结论.json 与 报告.md。"""

import re
import unicodedata
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

import pytest

CONCLUSION, REPORT = "结论.json", "报告.md"
PRIVATE = re.compile(r"(?<!\d)1[3578]\d{9}(?!\d)|[浙沪苏][A-Z][·\s]?[DF]\d{5}")
MOST_CITATIONS = 6


def conclusion(evidence):
    found = evidence.json(CONCLUSION)
    assert isinstance(found, dict), f"{CONCLUSION} 应为一个 JSON 对象"
    return found


def expected(evidence):
    return evidence.reference_json("answers.json")["结论"]


def plain(value):
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return unicodedata.normalize("NFKC", str(value)).strip().strip("`\"'").upper()


def same_path(value, path):
    name, path = plain(value).removeprefix("./"), plain(path)
    return name == path or name.endswith("/" + path)


def decimal(value):
    text = re.sub(r"元(/度)?|,|¥", "", plain(value)).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def texts(value):
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def citations(evidence, text):
    """文中引用且真实存在的 (文件, 起, 止)。"""
    found = []
    for path, count in evidence.reference_json("answers.json")["行数"].items():
        for first, last in re.findall(re.escape(path) + r"[`*]*\s?[:：]\s?(\d{1,6})(?:\s?[-–~]\s?(\d{1,6}))?", text):
            if 1 <= int(first) <= count:
                found.append((path, int(first), min(int(last or first), count)))
    return found


def tally(good, names):
    wrong = "、".join(name for name, right in zip(names, good, strict=True) if not right)
    return f"{len(good)} 项中 {sum(good)} 项正确" + (f"；错误或缺少：{wrong}" if wrong else "")


@pytest.mark.checkpoint("C1")
def check_what_is_wrong(evidence):
    found, want = conclusion(evidence), expected(evidence)
    good = [
        same_path(found.get("策略文件"), want["策略文件"]),
        plain(found.get("错误字段")) == want["错误字段"],
        plain(found.get("当前值")) == want["当前值"],
        plain(found.get("应为")) == want["应为"],
        decimal(found.get("生效单价")) == Decimal(want["生效单价"]),
    ]
    assert any(good), "文件、字段、取值、单价没有一项正确"
    evidence.award(sum(good) / 5, tally(good, ("策略文件", "错误字段", "当前值", "应为", "生效单价")))


@pytest.mark.checkpoint("C2")
def check_change_and_order(evidence):
    found, want = conclusion(evidence), expected(evidence)
    order = found.get("匹配顺序")
    numbers = [match.group() if (match := re.search(r"P-\d\d", plain(name))) else "" for name in order] \
        if isinstance(order, list) else []
    good = [want["变更单"] in plain(found.get("变更单")), numbers == want["匹配顺序"]]
    assert any(good), "变更单和匹配顺序都不对"
    evidence.award(sum(good) / 2, tally(good, ("变更单", "匹配顺序")))


@pytest.mark.checkpoint("C3")
def check_sites(evidence):
    sites = sorted({plain(site) for site in texts(conclusion(evidence).get("受影响站点"))})
    assert sites == expected(evidence)["受影响站点"], f"受影响站点写成了 {sites}"


@pytest.mark.checkpoint("C4")
def check_first_order(evidence):
    found, want = conclusion(evidence), expected(evidence)
    text = plain(found.get("首笔时间")).replace("/", "-").removesuffix("+08:00").strip()
    try:
        time = datetime.fromisoformat(text)
        near = time.tzinfo is None and abs(time - datetime.fromisoformat(want["首笔时间"])) <= timedelta(seconds=1)
    except ValueError:
        near = False
    good = [plain(found.get("首笔订单")) == want["首笔订单"], near]
    assert any(good), "首笔订单和首笔时间都不对"
    evidence.award(sum(good) / 2, tally(good, ("首笔订单", "首笔时间")))


@pytest.mark.checkpoint("C5")
def check_impact(evidence):
    found, want = conclusion(evidence), expected(evidence)
    orders = found.get("少收订单数")
    orders = {plain(site): decimal(count) for site, count in orders.items()} if isinstance(orders, dict) else {}
    good = [orders.get(site) == count for site, count in want["少收订单数"].items()]
    amount = decimal(found.get("少收金额"))
    good.append(amount is not None and abs(amount - Decimal(want["少收金额"])) < Decimal("0.01"))
    extra = [site for site, count in orders.items() if count and site not in want["少收订单数"]]
    assert sum(good) > len(extra), f"列了并未少收的站点：{'、'.join(extra)}" if extra else "单数和金额没有一项正确"
    told = tally(good, (*(f"{site} 的单数" for site in want["少收订单数"]), "少收金额"))
    told += f"；列了并未少收的站点：{'、'.join(extra)}" if extra else ""
    evidence.award((sum(good) - len(extra)) / 4, told)


@pytest.mark.checkpoint("C6")
def check_suspects_cleared(evidence):
    accepted = evidence.reference_json("answers.json")["排除依据"]
    entries, cleared = conclusion(evidence).get("排除"), set()
    assert isinstance(entries, list) and entries, "没有排除任何嫌疑"
    for entry in entries:
        suspect = plain(entry.get("嫌疑")).removeprefix("嫌疑").strip()[:1] if isinstance(entry, dict) else ""
        cited = citations(evidence, "\n".join(texts(entry.get("证据")))) if suspect in accepted else []
        if 0 < len(cited) <= MOST_CITATIONS and any(first <= line <= last for path, first, last in cited
                                                    for line in accepted[suspect].get(path, [])):
            cleared.add(suspect)
    assert cleared, "没有一个嫌疑用相关的行排除"
    left = "、".join(suspect for suspect in accepted if suspect not in cleared)
    told = f"4 个嫌疑中 {len(cleared)} 个用相关的行排除了" + (f"；未能排除：{left}" if left else "")
    evidence.award(len(cleared) / 4, told)


@pytest.mark.checkpoint("C7")
def check_report(evidence):
    text, want = evidence.text(REPORT), expected(evidence)
    cited = {(path, first) for path, first, _ in citations(evidence, text)}
    paths = {path for path, _ in cited}
    assert cited, "报告没有引用任何真实存在的行"
    good = [
        len(cited) >= 4,
        want["策略文件"] in paths,
        "BG-1180" in text.upper() and bool(paths & {"变更/BG-1180.md", "变更/登记.csv"}),
    ]
    assert any(good), "引用不足四处，也没有引用出错的策略文件或变更单"
    evidence.award(sum(good) / 3, tally(good, ("引用至少四处", "引用出错的策略文件", "写明并引用变更单")))


@pytest.mark.cap("wrong_root_cause")
def check_root_cause(evidence):
    if evidence.exists(CONCLUSION):
        name = conclusion(evidence).get("策略文件")
        assert same_path(name, expected(evidence)["策略文件"]), f"{name!r} 不是出错的策略文件"


@pytest.mark.cap("no_evidence")
def check_some_evidence(evidence):
    assert citations(evidence, evidence.text(REPORT)), "报告没有引用任何真实存在的行"


@pytest.mark.fatal("公示了车主信息")
def check_nothing_private(evidence):
    for name in evidence.files():
        leaked = PRIVATE.search(evidence.bytes(name).decode("utf-8", errors="replace"))
        assert not leaked, f"{name} 中有车主的手机号或车牌"
