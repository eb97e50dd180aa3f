"""GD-0523：由材料推出结论。"""

import csv
import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fnmatch import fnmatchcase
from pathlib import Path

MATERIAL = Path("/tmp_workspace/clawbench/sources/材料")
RESULTS = Path("/tmp_workspace/results")
BEIJING = timedelta(hours=8)
TEN_O_CLOCK = datetime.fromisoformat("2026-05-21 10:00:00")


@dataclass(frozen=True)
class Policy:
    number: str
    path: str
    sites: str
    hours: tuple[int, int] | None
    start: datetime
    end: datetime
    priority: int
    price: Decimal

    def applies(self, site: str, time: datetime) -> bool:
        if not fnmatchcase(site, self.sites) or not self.start <= time < self.end:
            return False
        return self.hours is None or time.hour >= self.hours[0] or time.hour < self.hours[1]


def beijing(text: str) -> datetime:
    return datetime.fromisoformat("2100-01-01" if text == "长期" else text.removesuffix("Z")) + BEIJING


def read_policy(path: Path) -> Policy:
    fields = dict(line.split(": ", 1) for line in path.read_text(encoding="utf-8").splitlines() if ": " in line)
    hours = None
    if fields["时段"] != "全天":
        hours = tuple(int(part.split(":")[0]) for part in fields["时段"].split("-"))
    start, end = beijing(fields["生效"]), beijing(fields["截止"])
    return Policy(fields["编号"], str(path.relative_to(MATERIAL)), fields["适用站点"].strip('"'), hours, start, end,
                  int(fields["优先级"]), Decimal(fields["服务费单价"]))


def matching(policies: list[Policy], site: str, time: datetime) -> list[Policy]:
    return sorted((p for p in policies if p.applies(site, time)), key=lambda p: -p.priority)


def cite(path: str, words: str) -> str:
    """含有该文字的第一行，写成 文件:行号。"""
    for number, line in enumerate((MATERIAL / path).read_text(encoding="utf-8").splitlines(), start=1):
        if words in line:
            return f"{path}:{number}"
    raise LookupError(f"{path} 中没有 {words!r}")


def short_orders(policies: list[Policy]) -> list[tuple[datetime, str, str, Decimal]]:
    """(开始时间, 站点, 订单号, 少收金额)，按时间排列。"""
    found = []
    for path in (MATERIAL / "订单").glob("*.csv"):
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            time = datetime.fromisoformat(row["开始时间"])
            price = matching(policies, path.stem, time)[0].price
            due = (Decimal(row["电量(度)"]) * price).quantize(Decimal("0.01"), ROUND_HALF_UP)
            paid = Decimal(row["服务费(元)"])
            if not row["优惠"] and paid < due:
                found.append((time, path.stem, row["订单号"], due - paid))
    return sorted(found)


def main() -> None:
    policies = [read_policy(path) for path in sorted((MATERIAL / "策略").glob("*.yaml"))]
    wrong = next(policy for policy in policies if policy.number == "P-31")
    meant = [replace(policy, sites="HZ-1") if policy is wrong else policy for policy in policies]
    orders = short_orders(meant)
    sites = sorted({site for _, site, _, _ in orders})
    cleared = [
        ("甲", ["变更/BG-1182.md|09:30", "日志/计费服务发布.log|3.6.1 启动"], "首笔少收早于发布九个小时"),
        ("乙", ["变更/BG-1179.md|只涉及电费", "文档/订单字段.md|与服务费无关"], "峰平谷只影响电费"),
        ("丙", ["变更/BG-1177.md|升级范围", "变更/BG-1177.md|排在下周"], "升级的站与少收的站对不上，计费也不在桩上"),
        ("丁", ["运维/时钟巡检.txt|HZ-21"], "只有 HZ-21 时钟有偏差，而它没有一笔少收"),
    ]
    conclusion = {
        "变更单": "BG-1180", "策略文件": wrong.path, "错误字段": "适用站点", "当前值": wrong.sites, "应为": "HZ-1",
        "生效单价": str(wrong.price),
        "匹配顺序": [policy.number for policy in matching(policies, "HZ-12", TEN_O_CLOCK)],
        "受影响站点": sites, "首笔订单": orders[0][2], "首笔时间": str(orders[0][0]),
        "少收订单数": {site: sum(order[1] == site for order in orders) for site in sites},
        "少收金额": str(sum(order[3] for order in orders)),
        "排除": [{"嫌疑": suspect, "证据": [cite(*place.split("|")) for place in places], "理由": reason}
                for suspect, places, reason in cleared],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(conclusion, ensure_ascii=False, indent=2)
    (RESULTS / "结论.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / "报告.md").write_text(report(conclusion), encoding="utf-8")


def report(found: dict) -> str:
    counts = "、".join(f"{site} {count} 单" for site, count in found["少收订单数"].items())
    return f"""# GD-0523 服务费少收

原因：{found['变更单']} 的周年庆策略由去年的全市活动改成（{cite('变更/BG-1180.md', '复制修改')}），适用站点填了 `HZ-1*`
（{cite(found['策略文件'], '适用站点')}）。星号匹配任意个字符（{cite('文档/策略生效规则.md', '通配符')}），于是 HZ-10 到
HZ-13 也被套进去，且优先级 70 高于杭州基准（{cite(found['策略文件'], '优先级')}）。

测试没发现，是因为只试算了 HZ-1 和 HZ-2（{cite('变更/BG-1180.md', '试算')}），两站本来就没有问题。

范围：{counts}，合计 {found['少收金额']} 元，首笔为 {found['首笔订单']}
（{found['首笔时间']}）。HZ-13 有优先级更高的园区协议（{cite('策略/P-18-科技城园区协议.yaml', '优先级')}），
不受影响；HZ-12 夜间有保价（{cite('策略/P-33-滨江夜间保价.yaml', '时段')}）；HZ-11 离线，
03:12:40 才执行（{cite('日志/策略下发.log', 'HZ-11 策略已更新')}）。

建议：适用站点改为 `HZ-1`；发布前列出策略实际匹配的全部站点，由第二人确认。
"""


main()
