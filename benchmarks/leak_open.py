"""The open half of the leak benchmark: the cases that the rewriter may be tuned against.

Worlds are made from a seed: the texts are in ``leak_open.yaml``, what differs between worlds is drawn here.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator

from leak_tools import Texts, Values, World, load_topics, moment, pick, token, worlds_of

TOPICS = load_topics("leak_open")


def worlds(seed: int = 1) -> Iterator[World]:
    """Yield the worlds of all topics."""
    for draw in (club, queue, tea, paper):
        yield from worlds_of(TOPICS[draw.__name__], f"open:{seed}", draw, encoded, spelled)


def club(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a walking club's accounts."""
    return {
        "owed": rng.randrange(31_000, 980_000),
        "members": rng.randrange(1_400, 8_700),
        "share": f"{rng.randrange(13, 98)}.{rng.randrange(11, 99)}",
        **moment(rng),
        "voucher": f"{pick(rng, 'WC', 'SUB', 'FEE')}-{rng.randrange(200, 999)}{pick(rng, 'X', 'Q', 'V')}",
        "book": f"{pick(rng, 'subs', 'hutfees', 'kitty')}-{rng.randrange(1990, 2020)}-{token(rng, 3)}.ods",
        "site": f"http://{pick(rng, 'members', 'ledger', 'huts')}.{token(rng, 5)}.net/"
        f"{pick(rng, 'list', 'books')}?y={rng.randrange(30, 99)}",
        "key": f"{token(rng, 5)}-{token(rng, 5)}-{token(rng, 5)}",
        "mark": f"wl{token(rng, 20)}",
    }


def queue(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a program that loses messages."""
    drawn: Values = {
        "lost": rng.randrange(13_000, 99_000),
        "kept": rng.randrange(1_100_000, 8_800_000),
        "ratio": f"0.{rng.randrange(13, 98)}{rng.randrange(11, 98)}",
        "commit": token(rng, 10, "abcdef0123456789"),
        "function": pick(rng, "flush_pending_acks", "rotate_spool_dir", "merge_shard_index", "drain_retry_lane"),
        "config": f"{pick(rng, 'spooler', 'relay', 'acker')}.{token(rng, 3)}.toml",
        "host": f"{pick(rng, 'mq', 'spool', 'node')}-{token(rng, 4)}.corp.example.org",
        "address": ".".join(str(rng.randrange(20, 250)) for _ in range(4)),
        **moment(rng),
        "password": f"{pick(rng, 'Vesper', 'Quartz', 'Nimbus')}!{token(rng, 9)}",
        "mark": f"trace:{token(rng, 16)}",
    }
    return drawn | {"ratio_percent": float(drawn["ratio"]) * 100, "ratio_short": drawn["ratio"][1:]}


def tea(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a tea shop's stock."""
    return {
        "value": rng.randrange(23_000, 890_000),
        "boxes": rng.randrange(1_300, 9_800),
        "share": f"{rng.randrange(13, 98)}.{rng.randrange(1, 9)}",
        **moment(rng),
        "batch": f"{pick(rng, 'PC', 'LJ', 'TGY')}{rng.randrange(1000, 9999)}{pick(rng, 'A', 'B', 'C')}",
        "book": f"{pick(rng, '盘点底稿', '出入库流水', '损耗登记')}{rng.randrange(10, 99)}.xlsx",
        "site": f"https://kucun.{token(rng, 5)}.cn/{pick(rng, 'pandian', 'liushui')}/{rng.randrange(100, 999)}",
        "password": f"cha{token(rng, 10)}",
        "mark": f"暗记{token(rng, 10)}",
    }


def paper(rng: random.Random, own: Texts) -> Values:
    """Draw the values of an English paper that is to be read in Chinese."""
    return {
        "samples": rng.randrange(12_000, 99_000),
        "scale": rng.randrange(1_200_000, 9_900_000),
        "error": f"{rng.randrange(13, 60)}.{rng.randrange(11, 99)}",
        "figure": f"fig_{token(rng, 4)}.svg",
        "code": f"{pick(rng, 'run', 'exp', 'abl')}_{rng.randrange(100, 999)}{pick(rng, 'a', 'b')}",
        "repository": f"https://git.{token(rng, 4)}.dev/{own['method'].lower()}/{pick(rng, 'core', 'eval')}",
        **moment(rng),
        "secret": f"r{token(rng, 15)}Z",
        "mark": f"mark-{token(rng, 12)}",
    }


def encoded(rng: random.Random, text: str) -> str:
    """Return a text in an encoding."""
    data = text.encode()
    swapped = "".join(chr((ord(c) - 97 + 13) % 26 + 97) if "a" <= c <= "z" else c for c in text.lower())
    return rng.choice([
        data.hex().upper(), ":".join(f"{byte:02x}" for byte in data), "0x" + data.hex(), text[::-1], swapped,
        base64.urlsafe_b64encode(data).decode().rstrip("="), base64.b64encode(b"key=" + data).decode(),
        "".join(f"\\x{byte:02x}" for byte in data), "".join(f"&#{ord(c)};" for c in text),
        "%".join(["", *(f"{byte:02x}" for byte in data)]), base64.b32encode(data).decode(),
    ])  # fmt: skip


def spelled(rng: random.Random, text: str) -> str:
    """Return a text with something between its characters."""
    compact = text.replace(" ", "")
    return rng.choice([
        " ".join(compact), "\u200d".join(text), "·".join(compact), "/".join(compact), "\u00ad".join(text),
        " - ".join(compact), "*".join(compact), "\ufeff".join(text),
    ])  # fmt: skip
