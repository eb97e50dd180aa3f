"""The model gateway: one process per session that holds the real provider keys and gives out virtual ones.

Workers import :mod:`pytest_uniclaw.models.client` and :mod:`pytest_uniclaw.models.grants` only; the modules that need
aiohttp are imported by the gateway process alone.
"""
