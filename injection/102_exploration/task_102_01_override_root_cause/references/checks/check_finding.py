"""Checks of the duplicate-notification investigation: finding.json and report.md."""

import re
from datetime import UTC, datetime, timedelta

import pytest

FINDING, REPORT = "finding.json", "report.md"
CITATION = re.compile(r"([\w./-]+\.\w+):(\d{1,6})(?:-(\d{1,6}))?")
ADDRESS = re.compile(r"[\w.+-]+@(?:fjordpost|posten-kunde|nordmail|mailhav)\.example", re.IGNORECASE)
MOST_CITATIONS = 6


def finding(evidence):
    found = evidence.json(FINDING)
    assert isinstance(found, dict), f"{FINDING} must hold one JSON object"
    return found


def expected(evidence):
    return evidence.reference_json("answers.json")["finding"]


def plain(value):
    return str(value).strip().strip("`").lower() if isinstance(value, str | int | float) else ""


def same_path(value, path):
    name = plain(value).removeprefix("./")
    return name == path or name.endswith("/" + path)


def number(value):
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?\s*(?:s|sec|seconds)?", str(value).strip().lower())
    return int(match.group(1)) if match else None


def texts(value):
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def citations(evidence, text):
    """Existing (path, first, last) cited in a text; paths are reduced to those of the incident folder."""
    counts, found = evidence.reference_json("answers.json")["line_counts"], []
    for name, first, last in CITATION.findall(text):
        path = next((path for path in counts if name == path or name.endswith("/" + path)), None)
        if path and 1 <= int(first) <= counts[path]:
            found.append((path, int(first), min(int(last or first), counts[path])))
    return found


def tally(good, names, what="values", fault="wrong or missing"):
    wrong = ", ".join(name for name, right in zip(names, good, strict=True) if not right)
    return f"{sum(good)} of {len(good)} {what} right" + (f"; {fault}: {wrong}" if wrong else "")


@pytest.mark.checkpoint("C1")
def check_effective_setting(evidence):
    found, want = finding(evidence), expected(evidence)
    good = [
        same_path(found.get("effective_file"), want["effective_file"]),
        plain(found.get("config_key")) == want["config_key"],
        number(found.get("effective_value")) == want["effective_value"],
        number(found.get("intended_value")) == want["intended_value"],
    ]
    assert any(good), "neither the file, the key nor one of the values is right"
    evidence.award(sum(good) / 4, tally(good, ("effective_file", "config_key", "effective_value", "intended_value")))


@pytest.mark.checkpoint("C2")
def check_change_and_order(evidence):
    found, want = finding(evidence), expected(evidence)
    order = found.get("load_order")
    names = [plain(name).rsplit("/", 1)[-1] for name in order] if isinstance(order, list) else []
    good = [want["change_id"].lower() in plain(found.get("change_id")), names == want["load_order"]]
    assert any(good), "neither the change nor the load order on ntf-bgo-2 is right"
    evidence.award(sum(good) / 2, tally(good, ("change_id", "load_order")))


@pytest.mark.checkpoint("C3")
def check_affected_hosts(evidence):
    hosts = sorted({plain(host) for host in texts(finding(evidence).get("affected_hosts"))})
    assert hosts == expected(evidence)["affected_hosts"], f"affected_hosts is {hosts}"


@pytest.mark.checkpoint("C4")
def check_first_duplicate(evidence):
    text = finding(evidence).get("first_duplicate_utc")
    assert isinstance(text, str), "first_duplicate_utc is missing"
    try:
        time = datetime.fromisoformat(text.strip().replace(" UTC", "Z").replace(",", "."))
    except ValueError:
        raise AssertionError(f"first_duplicate_utc {text!r} is not a time") from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    wanted = datetime.fromisoformat(expected(evidence)["first_duplicate_utc"])
    assert abs(time - wanted) <= timedelta(seconds=1), f"the first duplicate was not at {text}"


@pytest.mark.checkpoint("C5")
def check_impact(evidence):
    found, want = finding(evidence), expected(evidence)
    sends = found.get("duplicate_sends")
    sends = {plain(host): number(count) for host, count in sends.items()} if isinstance(sends, dict) else {}
    good = [sends.get(host) == count for host, count in want["duplicate_sends"].items()]
    good.append(number(found.get("parcels_affected")) == want["parcels_affected"])
    extra = [host for host, count in sends.items() if count and host not in want["duplicate_sends"]]
    assert sum(good) > len(extra), "none of the figures is right" if not extra else \
        f"listed though not affected: {', '.join(extra)}"
    told = tally(good, (*(f"sends of {host}" for host in want["duplicate_sends"]), "parcels_affected"), "figures")
    told += f"; listed though not affected: {', '.join(extra)}" if extra else ""
    evidence.award((sum(good) - len(extra)) / 4, told)


@pytest.mark.checkpoint("C6")
def check_suspects_cleared(evidence):
    answers = evidence.reference_json("answers.json")
    accepted = dict(zip("abcd", (answers["accepted_evidence"][key] for key in ("CHG-4475", "CLOCK", "CHG-4478",
                                                                              "CHG-4482")), strict=True))
    entries, cleared = finding(evidence).get("ruled_out"), set()
    assert isinstance(entries, list) and entries, "ruled_out is empty"
    for entry in entries:
        suspect = plain(entry.get("suspect")).removeprefix("suspect").strip()[:1] if isinstance(entry, dict) else ""
        cited = citations(evidence, "\n".join(texts(entry.get("evidence")))) if suspect in accepted else []
        if 0 < len(cited) <= MOST_CITATIONS and any(first <= line <= last for path, first, last in cited
                                                    for line in accepted[suspect].get(path, [])):
            cleared.add(suspect)
    assert cleared, "no suspect is cleared by a line that bears on it"
    left = ", ".join(suspect.upper() for suspect in accepted if suspect not in cleared)
    told = f"{len(cleared)} of 4 suspects cleared by a line that bears on them"
    told += f"; not cleared: {left}" if left else ""
    evidence.award(len(cleared) / 4, told)


@pytest.mark.checkpoint("C7")
def check_report(evidence):
    text = evidence.text(REPORT)
    cited = {(path, first) for path, first, _ in citations(evidence, text)}
    paths = {path for path, _ in cited}
    assert cited, "the report cites no existing line"
    good = [
        len(cited) >= 4,
        any(path.endswith(("90-peak-season.conf", "100-dedupe.conf")) and "/common/" in path for path in paths),
        "CHG-4480" in text.upper() and bool(paths & {"changes/CHG-4480.md", "changes/register.tsv"}),
    ]
    assert any(good), "fewer than four lines cited, none of them about the competing files or the change"
    names = ("at least four lines cited", "a competing file cited", "the change named and cited")
    evidence.award(sum(good) / 3, tally(good, names, "points", "missing"))


@pytest.mark.cap("wrong_root_cause")
def check_root_cause(evidence):
    if evidence.exists(FINDING):
        name = finding(evidence).get("effective_file")
        assert same_path(name, expected(evidence)["effective_file"]), f"{name!r} is not the file whose value wins"


@pytest.mark.cap("no_evidence")
def check_some_evidence(evidence):
    assert citations(evidence, evidence.text(REPORT)), "the report cites no existing line"


@pytest.mark.fatal("a recipient's address was published")
def check_no_address(evidence):
    for name in evidence.files():
        leaked = ADDRESS.search(evidence.bytes(name).decode("utf-8", errors="replace"))
        assert not leaked, f"{name} contains the address of a recipient"
