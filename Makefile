# What a person types. The work is done by scripts/; every target may be repeated and does only what is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo replay test test-agents bench setup venv images images-all lint

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo:  ## set up, run the quickstart tasks and the three roles with models, say where the reports are
	@scripts/demo

replay:  ## the demo's three roles once more, from the cassette that the demo recorded
	@scripts/replay

test:  ## set up, then lint, types, unit tests and container tests: everything CI runs
	@scripts/test

test-agents:  ## the conformance battery for every agent, and its page in docs/
	@scripts/test-agents

bench: setup  ## what the harness costs beside the agent, with the floors it is held to
	@.venv/bin/python benchmarks/gateway.py --short
	@.venv/bin/python benchmarks/leaks.py
	@.venv/bin/python benchmarks/overhead.py

setup:  ## virtual environment, container engine, base image and the demo's images
	@scripts/setup

venv:  ## the virtual environment alone
	@scripts/setup --venv-only

images: setup  ## the demo's images (runtime, grader, nanobot)

images-all:  ## every image, with all agent versions
	@scripts/setup --all-images

lint: venv  ## ruff and mypy --strict
	@.venv/bin/ruff check .
	@.venv/bin/mypy
