"""临江市档案馆智能化改造工程结算。"""

import csv
import re
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

PROJECT = Path("/tmp_workspace/clawbench/sources/项目资料")
RESULTS = Path("/tmp_workspace/results")
FEN = Decimal("0.01")
HEADING = ["分项", "合同价", "变更", "结算价", "应完工", "实完工", "逾期天数", "违约金", "质保金"]

# 变更单 -> (金额, 顺延天数；None 表示按单, 依据文件, 依据原文, 理由)
DECISIONS = {
    "BG-03": ("24980.00", None, "变更单/BG-03-修订.md", "（修订版）", "修订版取代原单"),
    "BG-04": ("42060.00", None, "例会纪要/例会纪要-04.md", "商定的金额为 42,060.00 元", "例会确认，下次更正"),
    "BG-05": ("0.00", 0, "变更单/BG-05.md", "乙方项目经理：（空白）", "乙方未签字"),
    "BG-06": ("15920.00", None, "施工日志/2025-05.md", "按 BG-06 开始做双门互锁", "撤销函之前已经开始"),
    "BG-07": ("0.00", 0, "函件/2025-05-27-甲方函.md", "撤销 BG-07", "开始之前撤销"),
    "BG-08": ("17385.60", None, "例会纪要/例会纪要-05.md", "合计 17,385.60 元，一致", "按签证单合计"),
    "BG-09": ("0.00", 0, "变更单/BG-11.md", "整体取代 BG-09", "被取代"),
    "BG-12": ("16800.00", 8, "合同/补充协议二.md", "由十二天改为八天", "金额照单，顺延八天"),
    "BG-14": ("3816.00", None, "变更单/BG-14.md", "叁仟捌佰壹拾陆元整", "以大写为准"),
}
SPLIT = {"BG-11": {"FX10": Decimal("21000.00"), "FX11": Decimal("13200.00")}}


def read(path: str) -> str:
    return (PROJECT / path).read_text(encoding="utf-8")


def amount(text: str) -> Decimal:
    return Decimal(re.sub(r"[上限元, ]", "", text))


def day(text: str) -> date:
    return date(*map(int, re.findall(r"\d+", text)))


def parts() -> dict[str, dict]:
    """附件一，按两份补充协议调整。"""
    found = {}
    for line in read("合同/02-附件一-分项价格与工期表.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"FX\d\d", cells[0]):
            found[cells[0]] = {"price": amount(cells[2]), "due": day(cells[4]), "rate": Decimal(cells[5].split()[-1]),
                               "limit": Decimal("0.05"), "changes": Decimal(0)}
    first, second = read("合同/补充协议一.md"), read("合同/补充协议二.md")
    moved = amount(re.search(r"改为 ([\d,.]+) 元", second)[1])
    found["FX10"]["price"] -= moved
    found["FX11"]["price"] += moved
    found["FX03"]["due"] = day(re.search(r"FX03 的应完工日期改为 (.+?)。", first)[1])
    found["FX12"]["rate"] = Decimal(re.search(r"FX12 的违约金日费率改为千分之 (\d+)", first)[1])
    for name in ("FX10", "FX11"):
        found[name]["limit"] = Decimal("0.03")
    return found


def field(text: str, name: str) -> str:
    return re.search(rf"^\| {name} \| ([^|]+) \|$", text, re.MULTILINE)[1]


def apply_changes(account: dict[str, dict]) -> list[str]:
    """计入每一份有效的变更单，返回说明中的各行。"""
    lines = []
    for number in (f"BG-{index:02d}" for index in range(1, 15)):
        path, reason, days = f"变更单/{number}.md", "照单", None
        text = read(path)
        value = amount(field(text, "金额"))
        if number in DECISIONS:
            fixed, days, path, passage, reason = DECISIONS[number]
            assert passage in read(path), (path, passage)
            value, text = Decimal(fixed), read(path) if path.startswith("变更单/") else text
        part = field(text, "分项")[:4]
        for name, share in SPLIT.get(number, {part: value}).items():
            account[name]["changes"] += share
        extension = re.search(r"顺延 (\d+) 天", field(text, "工期"))
        days = int(extension[1]) if days is None and extension else days or 0
        account[part]["due"] += timedelta(days=days)
        lines.append(f"- {number}：{value:,.2f} 元，{path.rsplit('/', 1)[-1]}，{reason}")
    return lines


def completions() -> dict[str, date]:
    found, today = {}, None
    for path in sorted((PROJECT / "施工日志").glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                today = day(f"2025 {line.split('日')[0]}")
            match = re.match(r"- (FX\d\d)：.午移交，监理签认通过", line)
            if match:
                found[match[1]] = today
    return found


def main() -> None:
    account, rows = parts(), []
    decisions, completed = apply_changes(account), completions()
    for name, part in account.items():
        final = part["price"] + part["changes"]
        late = max(0, (completed[name] - part["due"]).days)
        damages = min(final * part["rate"] * late / 1000, final * part["limit"]).quantize(FEN, ROUND_HALF_UP)
        share = Decimal("0.03") if completed[name] <= date(2025, 5, 31) else Decimal("0.05")
        retention = (final * share).quantize(FEN, ROUND_HALF_UP)
        rows.append([name, part["price"], part["changes"].quantize(FEN), final, part["due"], completed[name], late,
                     damages, retention])
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "结算表.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([HEADING, *rows])
    final, damages, retention = (sum(row[column] for row in rows) for column in (3, 7, 8))
    (RESULTS / "结算说明.md").write_text(f"""# 结算说明

结算价合计 {final:,.2f} 元，违约金 {damages:,.2f} 元，质保金 {retention:,.2f} 元。

## 变更单

{chr(10).join(decisions)}

## 对 7 月 30 日来函的答复

- 空调独立机组的让价是例会确认的金额，没有附付款条件。
- 计日工按签证单合计，不按上限。
- 未签字的单子不生效，管径有没有调整都一样。
- 隔断以修订版为准。
- 移交未通过不算完工，空调以 6 月 19 日、机房以 7 月 29 日为准。
- 补充协议优于原单，顺延为八天。
""", encoding="utf-8")


main()
