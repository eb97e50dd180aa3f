"""Settings of this repository's own test runs; the plugin itself is loaded by its entry point."""

pytest_plugins = ["pytester"]
