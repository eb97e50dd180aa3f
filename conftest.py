"""Settings of this repository's own test runs; the plugin itself is loaded by its entry point."""

import pytest

pytest_plugins = ["pytester"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts pytest in pytest: it takes a second or two each, so it is kept apart from the unit tests.

    Rows of the conformance battery say in JUnit which agent and case they are (benchmarks/agents.py), run or not.
    """
    for item in items:
        if item.get_closest_marker("agents") and isinstance(item, pytest.Function):
            item.user_properties += [("agent", item.callspec.params["agent"]), ("case", item.originalname)]
        if "pytester" in getattr(item, "fixturenames", ()):
            item.add_marker("processes")
