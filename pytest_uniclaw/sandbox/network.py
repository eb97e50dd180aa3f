"""The one bridge of a session, for tasks that ask for the internet."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_uniclaw.sandbox.engine import calls, failures

if TYPE_CHECKING:
    from docker import APIClient

CREATE_SECONDS = 10.0
EXTRA_HOSTS = {"host.docker.internal": "host-gateway", "match-stream.local": "host-gateway"}
"""Names by which upstream's tasks reach the host."""


def session_network(api: APIClient, run: str, labels: Mapping[str, str]) -> str:
    """Return the name of the run's bridge, which keeps containers from each other, and make it if it is not there.

    Several workers may call this at once. The engine takes any number of networks of one name, but only one of one
    kernel device: the device's name, made from the run's, decides who makes it.

    Raises:
        EngineError: the engine could not make it (it may be out of address ranges).
    """
    name = f"uniclaw-{run}"
    end = time.monotonic() + CREATE_SECONDS
    while not exists(api, name):
        try:
            create(api, name, labels)
        except failures():
            if time.monotonic() > end:
                with calls(f"create the network {name} (remove unused ones with `docker network prune`)"):
                    create(api, name, labels)
            time.sleep(0.05)  # another worker is making it
    return name


def exists(api: APIClient, name: str) -> bool:
    """Tell whether a network of exactly this name exists."""
    with calls("list its networks"):
        return any(network["Name"] == name for network in api.networks(names=[name]))


def create(api: APIClient, name: str, labels: Mapping[str, str]) -> None:
    """Create the bridge."""
    device = "uc-" + hashlib.sha256(name.encode()).hexdigest()[:10]
    options = {"com.docker.network.bridge.enable_icc": "false", "com.docker.network.bridge.name": device}
    api.create_network(name, driver="bridge", options=options, labels=dict(labels), check_duplicate=True)
