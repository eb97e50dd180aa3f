"""Settings of this repository's own test runs; the plugin itself is loaded by its entry point."""

import pytest

pytest_plugins = ["pytester"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts pytest in pytest: it takes a second or two each, so it is kept apart from the unit tests."""
    for item in items:
        if "pytester" in getattr(item, "fixturenames", ()):
            item.add_marker("processes")
