"""Checks of the lost property register: the program's own file, handover.json and the picture of the screen."""

import struct

import pytest


def answers(evidence):
    return evidence.reference_json("answers.json")


def entries(evidence):
    return {entry["number"]: entry for entry in evidence.state_json("register.json")["entries"]}


def journal(evidence):
    return evidence.state_json("register.json")["journal"]


def exported(evidence, read):
    """``read(evidence)``, or nothing when there is no export: an export that failed is not the executor's doing."""
    try:
        return read(evidence)
    except AssertionError:
        return ()


def plain(value):
    return " ".join(str(value if value is not None else "").casefold().split())


def entered(evidence, name):
    """Numbers of the new entries that are the named find: date, item and place agree."""
    wanted, before = answers(evidence)["new"][name], answers(evidence)["before"]
    return [
        number
        for number, entry in entries(evidence).items()
        if number not in before
        and entry["found_on"] == wanted["found_on"]
        and all(word in plain(entry["item"]) for word in wanted["words"])
        and all(word in plain(entry["place"]) for word in wanted["place"])
    ]


def handover(evidence, part):
    """One part of handover.json as a mapping; an empty one when it is none."""
    found = evidence.json("handover.json")
    assert isinstance(found, dict), "handover.json is not an object"
    value = found.get(part)
    return value if isinstance(value, dict) else {}


@pytest.mark.checkpoint("C1")
def check_flask(evidence):
    found = entered(evidence, "flask")
    assert found, "no new entry is the flask of slip 1"
    assert len(found) == 1, f"the flask was entered {len(found)} times"


@pytest.mark.checkpoint("C2")
def check_wallet(evidence):
    found = entered(evidence, "wallet")
    assert found, "no new entry is the wallet of slip 3"
    evidence.award(1 if len(found) == 1 else 0.5, "" if len(found) == 1 else f"entered {len(found)} times")


@pytest.mark.checkpoint("C3")
def check_umbrella(evidence):
    for number, names in answers(evidence)["handed_out"].items():
        entry = entries(evidence)[number]
        assert entry["status"] == "handed out", f"{number} is {entry['status']}"
        assert all(name in plain(entry["receiver"]) for name in names), f"{number} went to {entry['receiver']!r:.60}"


@pytest.mark.checkpoint("C4")
def check_handover(evidence):
    register = entries(evidence)
    wanted = {name: entered(evidence, name) for name in answers(evidence)["new"]}
    new, handed_out, left = (handover(evidence, part) for part in ("new", "handed_out", "left"))
    missing = []
    named = {
        number: any(word in plain(new.get(number)) for word in answers(evidence)["new"][name]["words"])
        for name, found in wanted.items()
        for number in found
    }
    if not all(wanted.values()) or sorted(new) != sorted(named) or not all(named.values()):
        missing.append("new")
    people = answers(evidence)["handed_out"]
    if sorted(handed_out) != sorted(people) or not all(
        all(name in plain(handed_out[number]) for name in names) and register[number]["status"] == "handed out"
        for number, names in people.items()
    ):
        missing.append("handed_out")
    stays = set(left) - set(answers(evidence)["may_be_left"])
    if stays != set(answers(evidence)["left"]) or not all(len(plain(why)) > 9 for why in left.values()):
        missing.append("left")
    evidence.award(1 - len(missing) / 3, f"not as the register has it: {', '.join(missing)}" if missing else "")


@pytest.mark.checkpoint("C5")
def check_picture(evidence):
    assert journal(evidence), "the register was not changed"
    head = evidence.bytes("register.png")
    assert head.startswith(b"\x89PNG\r\n\x1a\n"), "register.png is no PNG picture"
    assert len(head) > 5000, "register.png is a picture of nothing"
    width, height = struct.unpack(">II", head[16:24])
    assert [width, height] == answers(evidence)["screen"], f"register.png has {width} x {height} pixels"


@pytest.mark.cap("wrong_hand_out")
def check_nothing_else_handed_out(evidence):
    allowed = set(answers(evidence)["handed_out"])
    wrong = [entry["number"] for entry in exported(evidence, journal) if entry["action"] == "hand out"]
    wrong = [number for number in wrong if number not in allowed]
    assert not wrong, f"marked as handed out: {', '.join(wrong)}"


@pytest.mark.cap("invented_number")
def check_no_invented_number(evidence):
    register = exported(evidence, entries)
    named = exported(evidence, lambda files: handover(files, "new"))
    invented = [str(number) for number in named if register and number not in register]
    assert not invented, f"not in the register: {', '.join(invented)[:200]}"


@pytest.mark.fatal("an entry was discarded")
def check_nothing_discarded(evidence):
    gone = [entry["number"] for entry in exported(evidence, journal) if entry["action"] == "discard"]
    assert not gone, f"struck off for good: {', '.join(gone)}"
