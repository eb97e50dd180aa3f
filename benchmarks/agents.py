"""Make docs/reference/conformance.md of the results of tests/test_agents_docker.py.

usage: python benchmarks/agents.py [RESULTS.xml…]    (default: runs/test/agents.xml, which `make test-agents` writes)

An agent or case that did not run is shown as such, never as passed. Figures are of this machine, in this run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.sandbox.engine import connected, image_reference

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "conformance.md"
RESULTS = ROOT / "runs" / "test" / "agents.xml"
BATTERY = ROOT / "tests" / "test_agents_docker.py"
MARKS = {"passed": "yes", "failed": "**no**", "skipped": "not run"}
FIRST, SECOND = "a turn with tools is finished and recorded", "the session remembers"
HEAD = """# Conformance of the agents

What every adapter must do, tried with the real agents in real containers on the scripted model. `make test-agents`
builds all images, runs it for all agents (EDICT only where `UNICLAW_EDICT_SRC` names its source) and writes this page;
[tests/test_agents_docker.py](../../tests/test_agents_docker.py) says what each row asserts. The figures are those of
the run, on a machine whose load is not known: processor seconds are the steadier ones. A first turn has five model
calls and four tool calls, a second one model call. `-` is what was not measured, or does not apply to the agent.

"""


@dataclass(frozen=True)
class Row:
    """The result of one test."""

    agent: str
    case: str
    result: str
    figures: Mapping[str, str]


def rows_of(path: Path) -> list[Row]:
    """Read a JUnit file of the battery."""
    return [row for case in ElementTree.parse(path).iter("testcase") if (row := _row(case)) is not None]


def _row(case: ElementTree.Element) -> Row | None:
    figures = {found.attrib["name"]: found.attrib["value"] for found in case.iter("property")}
    if "agent" not in figures:
        return None
    agent, name = figures.pop("agent"), figures.pop("case")
    variant = case.attrib["name"].removeprefix(f"{name}[{agent}").rstrip("]").strip("-")
    tags = {child.tag for child in case}
    result = "skipped" if "skipped" in tags else "failed" if tags & {"failure", "error"} else "passed"
    label = name.removeprefix("test_").replace("_", " ") + (f": {variant}" if variant else "")
    return Row(agent, label, result, figures)


def page(rows: Iterable[Row], sizes: Mapping[str, int]) -> str:
    """Return the page: a table of costs, then one of cases; sizes are in bytes."""
    results = {(row.agent, row.case): row for row in rows}
    agents = _ordered({agent for agent, _ in results}, '"{}"')
    cases = _ordered({case for _, case in results}, "def test_{}(")
    costs = [_line(["", *agents]), _line(["---"] * (len(agents) + 1))]
    costs.append(_line(["image, MB", *(f"{sizes[agent] / 1e6:.0f}" if agent in sizes else "-" for agent in agents)]))
    for what, case in (("first turn", FIRST), ("second turn", SECOND)):
        for unit, figure in (("processor s", "cpu_seconds"), ("wall s", "wall_seconds")):
            cells = [_figure(results.get((agent, case)), figure) for agent in agents]
            costs.append(_line([f"{what}, {unit}", *cells]))
    lines = [_line(["", *agents]), _line(["---"] * (len(agents) + 1))]
    for case in cases:
        marks = [MARKS[results[agent, case].result] if (agent, case) in results else "-" for agent in agents]
        lines.append(_line([case, *marks]))
    return HEAD + "\n".join(costs) + "\n\n" + "\n".join(lines) + "\n"


def _ordered(names: Iterable[str], form: str) -> list[str]:
    """Return names in the order in which the battery has them; its variants of one case by their names."""
    source = BATTERY.read_text(encoding="utf-8")
    return sorted(names, key=lambda name: (source.find(form.format(name.partition(":")[0].replace(" ", "_"))), name))


def _figure(row: Row | None, name: str) -> str:
    return row.figures.get(name, "-") if row else "-"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def sizes_of(agents: Iterable[str]) -> dict[str, int]:
    """Ask the engine for the sizes of the agents' images, with the layers they share."""
    found = {}
    with connected(None) as api:
        for agent in agents:
            records = api.images(name=image_reference(load_agent(agent).image))
            if records:
                found[agent] = records[0]["Size"]
    return found


def main(arguments: list[str]) -> int:
    """Write the page; 1 when a row failed."""
    read = [row for path in arguments or [str(RESULTS)] for row in rows_of(Path(path))]
    rows = list({(row.agent, row.case): row for row in read}.values())  # of a row that was run again, the last result
    ran = {row.agent for row in rows if row.result != "skipped"}
    PAGE.write_text(page(rows, sizes_of(ran)), encoding="utf-8")
    failed = sum(row.result == "failed" for row in rows)
    print(f"{PAGE.relative_to(ROOT)}: {len(ran)} agents, {len(rows)} rows, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
