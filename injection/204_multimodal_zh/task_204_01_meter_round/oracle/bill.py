"""Turn what the photos show into readings.csv, bills.json and note.md."""

import csv
import json
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

# IMG_3107 (serial, tag, reading), IMG_3108 (tag -> flat), IMG_3109 (prices, swap, empty flat), IMG_3110, IMG_3111.
METERS = {"LX-30417": ("蓝", "526.381"), "LX-30422": ("红", "348.905"), "LX-31850": ("黄", "19.462"),
          "LX-30409": ("绿", "1073.218")}
FLAT = {"绿": "101", "蓝": "102", "红": "201", "黄": "202"}
TIER, PRICE, ABOVE, KWH, EMPTY = Decimal(20), Decimal("3.45"), Decimal("5.10"), Decimal("0.54"), "201"
SWAP = {"LX-31850": ("LX-30398", Decimal("789.437"), Decimal("0.010"))}
STAIRS, REPAIR = ("DD-0862", Decimal(7591)), ("101", Decimal("116.00"))
NOTE = """# 10 月抄表说明

不对劲的地方
- 201 九月底就空了，这个月却走了 6.425 吨水，可能漏水，请去看看。这笔水费记在房东名下。

更正
- 黄牌水表（202）10 月 12 日换过，旧表 3.385 吨加新表 19.452 吨，超过 20 吨的部分按 5.10 算。
- 收据印的 126.00 被划掉，按实收 116.00 记在 101。
- 白板上划掉的水价 3.54 和“四户平摊”没有采用。

手写认出的数，请核对：水价 3.45 和 5.10，旧表 789.437，新表 0.010，实收 116.00（壹佰壹拾陆元整）。
"""


def cents(value):
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


def main(sources, results):
    with (sources / "上次读数.csv").open(encoding="utf-8", newline="") as handle:
        last = {row["表号"]: Decimal(row["读数"]) for row in csv.DictReader(handle)}
    rows, bills = [], {flat: {"房号": flat, "付款人": "租客"} for flat in sorted(FLAT.values())}
    let = [flat for flat in bills if flat != EMPTY]
    share = cents((STAIRS[1] - last[STAIRS[0]]) * KWH / len(let))
    for meter, (tag, shown) in METERS.items():
        reading = Decimal(shown)
        if meter in SWAP:
            old, off, on = SWAP[meter]
            used = off - last[old] + reading - on
        else:
            used = reading - last[meter]
        flat = FLAT[tag]
        rows.append((meter, flat, shown, f"{used:.3f}"))
        items = {"水费": cents(min(used, TIER) * PRICE + max(used - TIER, Decimal(0)) * ABOVE),
                 "电费": share if flat in let else Decimal(0), "维修费": REPAIR[1] if flat == REPAIR[0] else Decimal(0)}
        bills[flat].update({name: float(value) for name, value in items.items()}, 合计=float(sum(items.values())))
    bills[EMPTY]["付款人"] = "房东"
    rows.append((STAIRS[0], "楼道", str(STAIRS[1]), str(STAIRS[1] - last[STAIRS[0]])))
    results.mkdir(parents=True, exist_ok=True)
    with (results / "readings.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([("表号", "房号", "读数", "用量"), *rows])
    document = {"账单": list(bills.values()), "总计": round(sum(bill["合计"] for bill in bills.values()), 2)}
    text = json.dumps(document, ensure_ascii=False, indent=2)
    (results / "bills.json").write_text(text + "\n", encoding="utf-8")
    (results / "note.md").write_text(NOTE, encoding="utf-8")


main(Path(sys.argv[1]), Path(sys.argv[2]))
