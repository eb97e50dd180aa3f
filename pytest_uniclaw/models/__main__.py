"""The gateway process: configuration on stdin, a ready line on stdout, life until stdin ends.

A terminal's Ctrl-C reaches the whole process group, so SIGINT is ignored: the controller decides, and its end, however
it comes, closes the pipe. SIGTERM and SIGHUP end the process in order.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # before the slow imports: a Ctrl-C while starting is the controller's too

import asyncio  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402

from aiohttp import web  # noqa: E402
from pydantic import ValidationError  # noqa: E402

from pytest_uniclaw.models.admin import AdminApp  # noqa: E402
from pytest_uniclaw.models.connections import MAX_CONNECTIONS, Connections, raise_file_limit  # noqa: E402
from pytest_uniclaw.models.gateway import AgentApp  # noqa: E402
from pytest_uniclaw.models.grants import REPLAY, SCRIPT, GatewayConfig, Provider  # noqa: E402
from pytest_uniclaw.models.ledger import Ledger  # noqa: E402
from pytest_uniclaw.models.provider import Backend, Upstream  # noqa: E402
from pytest_uniclaw.models.registry import Registry  # noqa: E402
from pytest_uniclaw.models.replay import Replay  # noqa: E402
from pytest_uniclaw.models.scripted import Scripted  # noqa: E402

_USAGE = 2
_SHUTDOWN_SECONDS = 0.2
"""What open connections get once every call has been cancelled and written down."""


def main() -> int:
    """Run the gateway; the exit status is 2 when the configuration cannot be read."""
    line = sys.stdin.buffer.readline()
    try:
        config = GatewayConfig.model_validate_json(line)
        named = ({"name": name, **fields} for name, fields in config.providers.items())
        providers = {provider.name: provider for provider in map(Provider.model_validate, named)}
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        sys.stderr.write(f"the first line of stdin is not a gateway configuration: {problems}\n")
        return _USAGE
    try:
        asyncio.run(_serve(config, providers))
    finally:
        if config.temporary is not None:
            shutil.rmtree(config.temporary, ignore_errors=True)
    return 0


async def _serve(config: GatewayConfig, providers: dict[str, Provider]) -> None:
    ended = _watch_for_the_end()
    config.directory.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(config.directory)
    registry = Registry(providers, config.max_cost_usd)
    upstreams = {name: Upstream(provider, config.tuning) for name, provider in providers.items()}
    replay = Replay(config.tuning)
    backends: dict[str, Backend] = {SCRIPT: Scripted(config.tuning), REPLAY: replay, **upstreams}
    # Half of the files are left for calls to providers, for exchange logs, and for the harness's own connections.
    connections = Connections(min(MAX_CONNECTIONS, raise_file_limit() // 2))
    agent_app = AgentApp(registry, ledger, backends, providers).application()
    agent_app.middlewares.insert(0, connections.middleware)
    agents, admin = await _runner(agent_app), await _runner(AdminApp(registry, ledger, backends, replay).application())
    door = await connections.listen(agents, config.agent_socket)
    config.agent_socket.chmod(0o666)
    await web.UnixSite(admin, str(config.admin_socket)).start()
    config.admin_socket.chmod(0o600)
    sockets = {"agent_socket": str(config.agent_socket), "admin_socket": str(config.admin_socket)}
    sys.stdout.write(json.dumps({"ready": True, "pid": os.getpid()} | sockets) + "\n")
    sys.stdout.flush()
    await ended.wait()
    await registry.close()
    door.close()
    await asyncio.gather(agents.cleanup(), admin.cleanup(), *(upstream.close() for upstream in upstreams.values()))
    ledger.close()


def _watch_for_the_end() -> asyncio.Event:
    """An event that is set by the end of stdin, SIGTERM or SIGHUP."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 65536):
            loop.remove_reader(sys.stdin.fileno())
            ended.set()

    try:
        loop.add_reader(sys.stdin.fileno(), readable)
    except PermissionError:  # a plain file cannot be watched, and has ended already
        ended.set()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    return ended


async def _runner(app: web.Application) -> web.AppRunner:
    # Bodies are decompressed by the handlers, which have a limit and OpenAI's words for what is wrong.
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None, auto_decompress=False
    )
    await runner.setup()
    return runner


if __name__ == "__main__":
    sys.exit(main())
