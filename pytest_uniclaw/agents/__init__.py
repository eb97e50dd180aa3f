"""Executors' adapters: one module per agent, all behind :class:`pytest_uniclaw.agents.base.Agent`."""
