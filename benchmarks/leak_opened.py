"""Topics of the leak benchmark that were held out until the rewriter was changed after their first run.

They belong to the open half since. Their texts are in ``leak_opened.yaml``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from leak_open import encoded, spelled
from leak_tools import Texts, Values, World, chinese_decimal, english_words, load_topics, moment, pick, token, worlds_of

TOPICS = load_topics("leak_opened")


def worlds(seed: int = 2) -> Iterator[World]:
    """Yield the worlds of all topics."""
    for draw in (museum, migration):
        yield from worlds_of(TOPICS[draw.__name__], f"opened:{seed}", draw, encoded, spelled)


def museum(rng: random.Random, own: Texts) -> Values:
    """Draw the values of labels for a museum's depot."""
    drawn: Values = {
        "price": rng.randrange(13_500, 870_000),
        "weight": rng.randrange(1_300, 9_700),
        "purity": f"{rng.randrange(21, 98)}.{rng.randrange(1, 10)}",
        **moment(rng),
        "year": (year := rng.randrange(1741, 1899)),
        "number": f"{rng.randrange(1950, 1999)}.{rng.randrange(100, 999)}."
        f"{pick(rng, 'b', 'c', 'd')}{rng.randrange(10, 99)}",
        "inventory": f"DEP{rng.randrange(10_000, 99_999)}{pick(rng, 'N', 'S', 'W')}",
        "scan": f"{pick(rng, 'plate', 'verso', 'stamp')}_{year}_{token(rng, 3)}.tif",
        "page": f"https://collections.{token(rng, 5)}.museum/objects/{rng.randrange(1000, 9999)}",
        "alarm": f"{rng.randrange(1000, 9999)}-{token(rng, 8)}",
        "trace": f"cnry{token(rng, 14)}",
    }
    price = drawn["price"]
    return drawn | {
        "price_head": str(price)[:-3],
        "price_tail": str(price)[-3:],
        "price_american": english_words(price).replace(" and ", " "),
        "inventory_number": drawn["inventory"][3:],
        "alarm_joined": drawn["alarm"].replace("-", ""),
    }


def migration(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a web shop that is moved to another program."""
    drawn: Values = {
        "orders": rng.randrange(12_000, 98_000),
        "cents": rng.randrange(1_100_000, 9_700_000),
        "loss": f"{rng.randrange(13, 70)}.{rng.randrange(11, 99)}",
        "field": pick(rng, "cust_ref_alt", "is_b2b_flag", "vat_region2"),
        "table": f"{pick(rng, 'tmp', 'stg', 'arc')}_{token(rng, 6)}",
        "dump": f"{pick(rng, 'orders', 'stock', 'users')}.{rng.randrange(100, 999)}.sql.gz",
        "host": f"https://{pick(rng, 'old', 'legacy', 'mirror')}-{token(rng, 4)}.shop.example.net:"
        f"{rng.randrange(2000, 9000)}/admin",
        **moment(rng),
        "secret": f"pk{token(rng, 17)}",
        "trace": f"{token(rng, 6)}.{token(rng, 8)}",
    }
    return drawn | {
        "amount": drawn["cents"] / 100,
        "loss_numeral": chinese_decimal(drawn["loss"]),
        "vendor_table": own["vendor"] + drawn["table"],
    }
