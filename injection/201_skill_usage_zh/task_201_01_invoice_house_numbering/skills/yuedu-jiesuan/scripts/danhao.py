"""生成或验证 HZ 系列结算单号。

格式：HZ<年月>-<三位序号>-<校验位>。校验位由年月、序号和客户编号加权求和后对 11 取模得出，余数 2 记作 X。
"""

import argparse
import sys

WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6)
MARKS = "10X98765432"


def danhao(yuefen: str, xuhao: int, kehu: str) -> str:
    """按月份（YYYY-MM）、序号和客户编号生成结算单号。"""
    month = yuefen.replace("-", "")
    total = sum(int(digit) * weight for digit, weight in zip(f"{month}{xuhao:03d}", WEIGHTS, strict=True))
    total += sum(ord(symbol) * 3 for symbol in kehu if symbol.isalpha()) + int(kehu[-3:]) * 7
    return f"HZ{month}-{xuhao:03d}-{MARKS[total % 11]}"


def main() -> int:
    """输出结算单号；验证时有效返回 0，无效返回 1。"""
    parser = argparse.ArgumentParser(description="HZ 系列结算单号")
    parser.add_argument("--yuefen", help="结算月份，YYYY-MM")
    parser.add_argument("--xuhao", type=int, help="序号")
    parser.add_argument("--kehu", required=True, help="客户编号，如 SZ-014")
    parser.add_argument("--yanzheng", metavar="单号", help="验证已有的结算单号")
    args = parser.parse_args()
    if args.yanzheng:
        month, seq = args.yanzheng[2:8], int(args.yanzheng[9:12])
        good = args.yanzheng == danhao(f"{month[:4]}-{month[4:]}", seq, args.kehu)
        print("有效" if good else "无效")
        return 0 if good else 1
    if not args.yuefen or args.xuhao is None:
        parser.error("生成单号需要 --yuefen 和 --xuhao")
    print(danhao(args.yuefen, args.xuhao, args.kehu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
