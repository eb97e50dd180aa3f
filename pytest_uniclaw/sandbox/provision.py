"""What a container is made of: labels, limits, rights and network, by the design's invariants 5 to 7."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.paths import SandboxPaths, paths_for
from pytest_uniclaw.sandbox.archive import account_id
from pytest_uniclaw.sandbox.base import Entry, Owner, SandboxSpec
from pytest_uniclaw.sandbox.engine import Container, calls, image_reference
from pytest_uniclaw.sandbox.network import EXTRA_HOSTS, session_network

if TYPE_CHECKING:
    from docker import APIClient

GATEWAY = "/run/uniclaw"
GUARDIAN = ("/usr/bin/python3", "-I", "-S", "-u", "/opt/uniclaw/guardian.py")
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What root needs to set up services, switch users and sweep. The executor's account has none of them."""
LOG_OPTIONS = {"max-size": "1m", "max-file": "1"}


def labels(owner: Owner, lifetime: float, *, keepable: bool = False) -> dict[str, str]:
    """Return the labels by which anyone can find what belongs to a run, a worker, an attempt, or to the past.

    What may be kept names its run in another label: the end of the run does not remove it, its deadline does.
    """
    return {
        "uniclaw": "1", "uniclaw.kept" if keepable else "uniclaw.run": owner.run,
        "uniclaw.worker": owner.worker, "uniclaw.attempt": owner.attempt,
        "uniclaw.deadline": str(int(time.time() + lifetime)),
    }


def session_labels(run: str, lifetime: float) -> dict[str, str]:
    """Return the labels of what belongs to a whole run."""
    return {"uniclaw": "1", "uniclaw.run": run, "uniclaw.deadline": str(int(time.time() + lifetime))}


def limits(memory: int, pids: int, shm: int, cpus: float = 0.0) -> dict[str, Any]:
    """Return the host settings that bound a container; swap is not to be had beyond its memory."""
    from docker.types import LogConfig, Ulimit

    settings: dict[str, Any] = {
        "mem_limit": memory, "memswap_limit": memory, "pids_limit": pids, "shm_size": shm,
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "log_config": LogConfig(type="json-file", config=LOG_OPTIONS),
    }
    if cpus > 0:
        settings["nano_cpus"] = int(cpus * 1e9)
    return settings


def rights(user: str) -> dict[str, Any]:
    """Return the host settings for an executor account: root keeps the engine's defaults, so that apt works."""
    if user == "root":
        return {}
    return {"cap_drop": ["ALL"], "cap_add": list(CAPABILITIES), "security_opt": ["no-new-privileges"]}


def reach(api: APIClient, spec: SandboxSpec) -> dict[str, Any]:
    """Return the host settings for the network and the gateway's socket."""
    settings: dict[str, Any] = {}
    if source := spec.relay or (str(spec.gateway) if spec.gateway else ""):
        settings["binds"] = {source: {"bind": GATEWAY, "mode": "ro"}}
    if spec.network == "isolated":
        return {**settings, "network_mode": "none"}
    network = session_network(api, spec.owner.run, session_labels(spec.owner.run, 4 * spec.lifetime))
    return {**settings, "network_mode": network, "extra_hosts": EXTRA_HOSTS}


def base_environment(paths: SandboxPaths) -> dict[str, str]:
    """Return what every command in a sandbox sees; none of it is secret, since the engine shows it."""
    return {
        "HOME": paths.home, "LANG": "C.UTF-8", "TZ": "UTC", "UNICLAW_WORKSPACE": paths.workspace,
        "UNICLAW_RESULTS": paths.results, "UNICLAW_SOURCES": paths.sources,
    }


def home_of(user: str, paths: SandboxPaths, executor: str) -> str:
    """Return the HOME of an account; the service account has none of its own."""
    if user == executor:
        return paths.home
    return "/root" if user == "root" else "/tmp" if user == "service" else paths_for(user).home


def create(container: Container, spec: SandboxSpec) -> None:
    """Create and start the executor's container.

    Raises:
        EngineError: the engine refused; for a missing image the text says how to build it.
    """
    api, paths = container.api, paths_for(spec.user)
    image = image_reference(spec.image)
    with calls(f"start a sandbox from the image {image} (`uniclaw images` builds ours)"):
        host = api.create_host_config(
            **limits(spec.memory, spec.pids, spec.shm, spec.cpus), **rights(spec.user), **reach(api, spec),
        )
        api.create_container(
            image, name=container.name, entrypoint=list(GUARDIAN[:1]), command=list(GUARDIAN[1:]), user="0:0",
            working_dir=paths.workspace, environment={**base_environment(paths), **spec.environment},
            labels=labels(spec.owner, spec.lifetime, keepable=spec.keepable), host_config=host,
        )
        api.start(container.name)


def skeleton(paths: SandboxPaths, executor: str) -> list[Entry]:
    """Return the folders of a fresh workspace.

    The executor may write everywhere in it. The sticky bit keeps it from replacing what is root's: the folder
    ``clawbench``, so that a path through it is what it seems, and the services' logs.
    """
    above = paths.logs.rsplit("/", 1)[0]
    own = (paths.results, paths.sources, f"{above}/runtime")
    return [
        Entry(paths.workspace, mode=0o1777), Entry(above, mode=0o755),
        *(Entry(path, mode=0o755, user=executor) for path in own), Entry(paths.logs, mode=0o1777),
    ]


def exec_user(user: str) -> str:
    """Return uid:gid: who that is does not depend on files that an executor may have changed.

    The engine reads the container's account files all the same, hence :func:`~.fetch.account_trap`.
    """
    number = account_id(user)
    return f"{number}:{number}"


def visible(environment: Mapping[str, str] | None, home: str) -> dict[str, str]:
    """Return a command's own environment: its HOME and what was passed for it."""
    return {"HOME": home, **(environment or {})}
