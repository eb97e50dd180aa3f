"""The held-out half of the leak benchmark: other tasks, other kinds of hidden files, other words, other seeds.

Nothing in the rewriter may be changed because of a case of this file or of ``leak_held.yaml``, which holds the texts.
Whoever does so needs a new held-out half.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator

from leak_tools import Texts, Values, World, chinese_decimal, load_topics, moment, pick, token, worlds_of

TOPICS = load_topics("leak_held")


def worlds(seed: int = 7_919) -> Iterator[World]:
    """Yield the worlds of all topics."""
    for draw in (kitchen, timetable, choir, podcast):
        yield from worlds_of(TOPICS[draw.__name__], f"held:{seed}", draw, _encoded, _spelled)


def kitchen(rng: random.Random, own: Texts) -> Values:
    """Draw the values of scaled recipes; one of their hidden files is nested JSON."""
    drawn: Values = {
        "grams": rng.randrange(13_000, 96_000),
        "cost": rng.randrange(1_300, 9_900),
        "fat": f"{rng.randrange(13, 60)}.{rng.randrange(11, 99)}",
        "salt": f"0.{rng.randrange(1_001, 9_999)}",
        "batch": f"{pick(rng, 'lot', 'vat', 'tray')}{rng.randrange(100, 999)}-{token(rng, 3)}",
        "sheet": f"{pick(rng, 'yield', 'costing', 'allergen')}{rng.randrange(20, 99)}{pick(rng, 'a', 'b')}.numbers",
        "mail": f"{pick(rng, 'orders', 'dairy', 'mill')}+{token(rng, 4)}@{token(rng, 6)}.example.com",
        **moment(rng),
        "code": f"{pick(rng, 'Basil', 'Thyme', 'Clove')}#{token(rng, 10)}",
        "trace": f"zz-{token(rng, 13)}-zz",
    }
    return drawn | {
        "tree": _tree(own, drawn),
        "salt_percent": float(drawn["salt"]) * 100,
        "salt_short": drawn["salt"][1:],
        "spice_twice": f"{own['spice']} {own['spice']}",
    }


def _tree(own: Texts, drawn: Values) -> str:
    truth = {
        "flour": {"grams": drawn["grams"], "from": own["farm"]},
        "people": [{"role": "baker", "who": own["cook"]}],
        "spice": own["spice"],
    }
    notes = [
        f"The trick is that {own['slip']}, which nobody guesses.",
        f"Tried on {drawn['day']} {drawn['month_name']}.",
    ]
    figures = {"cost_pence": drawn["cost"], "fat_percent": float(drawn["fat"]), "salt_share": float(drawn["salt"])}
    return json.dumps({"truth": truth, "notes": notes, **figures})


def timetable(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a school's timetable."""
    drawn: Values = {
        "minutes": rng.randrange(1_300, 9_800),
        "budget": rng.randrange(23_000, 950_000),
        "usage": f"{rng.randrange(13, 98)}.{rng.randrange(1, 10)}",
        **moment(rng),
        "room": f"{pick(rng, 'LAB', 'ART', 'GYM')}{rng.randrange(200, 999)}{pick(rng, 'F', 'R', 'L')}",
        "plan": f"{pick(rng, 'cover', 'clash', 'duty')}plan.v{rng.randrange(13, 60)}.{pick(rng, 'ods', 'xml', 'tsv')}",
        "page": f"https://timetable.{token(rng, 6)}.edu/{pick(rng, 'week', 'rota')}",
        "place": rng.randrange(100, 999),
        "login_name": f"{pick(rng, 'Owl', 'Fox', 'Elk')}{token(rng, 4)}",
        "login_word": token(rng, 7),
        "trace": f"q{token(rng, 15)}q",
    }
    return drawn | {
        "site": f"{drawn['page']}#{drawn['place']}",
        "login": f"{drawn['login_name']}/{drawn['login_word']}",
        "room_number": drawn["room"][3:],
        "room_wing": f"{drawn['room']} {own['wing']}",
    }


def choir(rng: random.Random, own: Texts) -> Values:
    """Draw the values of a choir's concert."""
    drawn: Values = {
        "income": rng.randrange(21_000, 760_000),
        "seats": rng.randrange(1_300, 9_600),
        "share": f"{rng.randrange(13, 98)}.{rng.randrange(1, 9)}",
        **moment(rng),
        "order": f"{pick(rng, 'HC', 'YC', 'PW')}-{rng.randrange(2000, 9999)}{pick(rng, 'K', 'M', 'T')}",
        "score": f"{pick(rng, '总谱校订', '分声部', '伴奏')}_{token(rng, 4)}.mscz",
        "site": f"http://piao.{token(rng, 6)}.com.cn/yanchu/{rng.randrange(1000, 9999)}",
        "password": f"Hechang{token(rng, 9)}",
        "trace": f"TRACE{token(rng, 11).upper()}",
    }
    return drawn | {
        "share_numeral": chinese_decimal(drawn["share"]),
        "title": own["piece"][1:-1],
        "soloist_hall": own["soloist"] + own["hall"],
    }


def podcast(rng: random.Random, own: Texts) -> Values:
    """Draw the values of notes on an English podcast; one of their hidden files is lines of JSON."""
    drawn: Values = {
        "listeners": rng.randrange(12_000, 99_000),
        "dollars": rng.randrange(1_200_000, 9_800_000),
        "growth": f"{rng.randrange(13, 90)}.{rng.randrange(11, 99)}",
        "clip": f"{pick(rng, 'intro', 'outro', 'cut')}_{token(rng, 5)}.wav",
        "tag": f"ep{rng.randrange(100, 999)}_{pick(rng, 'raw', 'mix', 'alt')}",
        "link": f"https://feeds.{token(rng, 5)}.fm/{pick(rng, 'show', 'private')}/{rng.randrange(1000, 9999)}",
        **moment(rng),
        "key": f"{token(rng, 8)}~{token(rng, 8)}",
        "trace": f"hidden-{token(rng, 11)}",
    }
    answers = {
        "guest": own["guest"], "sponsor": own["brand"], "listeners": drawn["listeners"], "money": drawn["dollars"],
        "the word of the day": own["word"], "growth": f"{drawn['growth']}%",
    }  # fmt: skip
    return drawn | {
        "lines": "\n".join(json.dumps({"q": question, "a": answer}) for question, answer in answers.items()),
        "growth_numeral": chinese_decimal(drawn["growth"]),
        "key_parted": drawn["key"].replace("~", " "),
        "brand_tag": own["brand"] + drawn["tag"],
    }


def _encoded(rng: random.Random, text: str) -> str:
    data = text.encode()
    turned = "".join(chr((ord(c) - 97 + 13) % 26 + 97) if "a" <= c <= "z" else c for c in text)
    turned = "".join(chr((ord(c) - 65 + 13) % 26 + 65) if "A" <= c <= "Z" else c for c in turned)
    return rng.choice([
        data.hex(), data.hex("-").upper(), "".join(f"\\u{ord(c):04x}" for c in text), text[::-1], turned,
        base64.b64encode(data).decode(), base64.b64encode(b"note: " + data + b".").decode(),
        "".join(f"%{byte:02X}" for byte in data), " ".join(str(byte) for byte in data),
        base64.b64encode(data.hex().encode()).decode(), "".join(f"&#x{ord(c):x};" for c in text),
    ])  # fmt: skip


def _spelled(rng: random.Random, text: str) -> str:
    compact = text.replace(" ", "")
    return rng.choice([
        " ".join(compact), "\u200c".join(text), "-".join(compact), ". ".join(compact), "\u2062".join(text),
        "_".join(compact), "|".join(compact), ", ".join(compact), "  ".join(compact), "\u180e".join(text),
    ])  # fmt: skip
