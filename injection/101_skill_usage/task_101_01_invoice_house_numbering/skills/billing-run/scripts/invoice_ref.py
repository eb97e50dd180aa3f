"""Write or verify one invoice reference of series CM.

A reference is CM-<yy><period letter>-<number, four digits><check letter>. The check letter is a weighted sum over the
year, month and number and over the customer code, modulo the letters that cannot be misread on a fax.
"""

import argparse
import sys

PERIODS = "ABCDEFGHJKLM"
LETTERS = "ABCDEFGHJKLMNPQRTUVWXY"
SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WEIGHTS = (7, 3, 1, 7, 3, 1, 7, 3)


def reference(month: str, seq: int, customer: str) -> str:
    """Build the reference for number `seq` in `month` (YYYY-MM) for a customer code."""
    year, number = month[2:4], int(month[5:7])
    digits = f"{year}{number:02d}{seq:04d}"
    total = sum(int(digit) * weight for digit, weight in zip(digits, WEIGHTS, strict=True))
    total += sum(SYMBOLS.index(symbol) * place for place, symbol in enumerate(customer.upper(), start=2))
    return f"CM-{year}{PERIODS[number - 1]}-{seq:04d}{LETTERS[total % len(LETTERS)]}"


def main() -> int:
    """Print a reference, or say whether one is valid (exit 1 when it is not)."""
    parser = argparse.ArgumentParser(description="Invoice references of series CM")
    parser.add_argument("--month", help="billing month, YYYY-MM")
    parser.add_argument("--seq", type=int, help="number from the number book")
    parser.add_argument("--customer", required=True, help="customer code, e.g. KES01")
    parser.add_argument("--verify", metavar="REF", help="check an existing reference instead of writing one")
    args = parser.parse_args()
    if args.verify:
        year, period, seq = args.verify[3:5], args.verify[5], int(args.verify[7:11])
        good = args.verify == reference(f"20{year}-{PERIODS.index(period) + 1:02d}", seq, args.customer)
        print("valid" if good else "NOT valid")
        return 0 if good else 1
    if not args.month or args.seq is None:
        parser.error("--month and --seq are needed to write a reference")
    print(reference(args.month, args.seq, args.customer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
