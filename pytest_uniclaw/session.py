"""What a session needs around its items: run directory, gateway, reaper, and the checks before any container.

The controller prepares once it knows that there are items to run (after collection); workers read what it left in
``<run>/session.json``. Nothing is started for a session without tasks.
"""

from __future__ import annotations

import difflib
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import pytest
from pydantic import BaseModel, ValidationError

from pytest_uniclaw.errors import InfraError, SettingsError, UniclawError
from pytest_uniclaw.models.client import Gateway, GatewayAddress, start_gateway
from pytest_uniclaw.models.grants import Provider, Tuning
from pytest_uniclaw.models.prices import Price
from pytest_uniclaw.options import load_settings, worker_input
from pytest_uniclaw.optiontable import CONFIG_NAME
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.preflight import Wanted, check_models, check_sandbox, notices
from pytest_uniclaw.privacy import resolve_values
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.rolecheck import check_roles
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.soundness import check_packages
from pytest_uniclaw.spec import RunContext
from pytest_uniclaw.store import find_run, new_run, open_run, write_json

SESSION_FILE = "session.json"
RUN_KEY = "uniclaw_run"
DIRECTORY_KEY = "uniclaw_directory"
WATCH_SECONDS = 0.25

Table = TypeVar("Table", bound=BaseModel)


@dataclass(frozen=True)
class RunInfo:
    """The run as an item sees it."""

    run: str
    directory: Path
    gateway: GatewayAddress | None
    context: RunContext


@dataclass(frozen=True)
class RunName:
    """Run id and directory, chosen before anything is written."""

    run: str
    directory: Path


NAME = pytest.StashKey[RunName]()
INFO = pytest.StashKey[RunInfo]()
REDACTOR = pytest.StashKey[Redactor]()


def choose_run(config: pytest.Config) -> RunName:
    """Return the session's run: the controller's choice in a worker, a resumed one, or a new one."""
    if NAME not in config.stash:
        given, settings = worker_input(config), load_settings(config)
        if RUN_KEY in given:
            name = RunName(given[RUN_KEY], Path(given[DIRECTORY_KEY]))
        elif settings.resume:
            try:
                directory = find_run(settings.runs_dir, settings.resume)
            except SettingsError as error:
                raise pytest.UsageError(f"--uniclaw-resume: {error}") from None
            name = RunName(f"{directory.name}-{secrets.token_hex(3)}", directory)
        else:
            run = new_run()
            name = RunName(run, settings.runs_dir / run)
        config.stash[NAME] = name
    return config.stash[NAME]


def stop_file(name: RunName) -> Path:
    """Return the file that tells a session's workers that their controller was interrupted."""
    return name.directory / f".interrupted-{name.run}"


def run_info(config: pytest.Config) -> RunInfo:
    """Return what the controller prepared; read once per process."""
    if INFO not in config.stash:
        name, settings = choose_run(config), load_settings(config)
        stored = json.loads((name.directory / SESSION_FILE).read_text("utf-8"))
        sockets = stored["gateway"]
        gateway = GatewayAddress(Path(sockets[0]), Path(sockets[1]), sockets[2]) if sockets else None
        worker = worker_input(config).get("workerid", "main")
        config.stash[INFO] = RunInfo(name.run, name.directory, gateway, _context(settings, name, worker))
    return config.stash[INFO]


def _context(settings: Settings, name: RunName, worker: str) -> RunContext:
    return RunContext(
        run=name.run, directory=name.directory, worker=worker, snapshot_mode=settings.snapshot_mode,
        privacy=resolve_values(settings.privacy_file, settings.privacy_environment), user=settings.executor_user,
        network=settings.network, memory=settings.memory, keep=settings.keep, infra_retries=settings.infra_retries,
        protocol=settings.protocol, cassette_record=settings.cassette_record,
        cassette_replay=settings.cassette_replay, cassette_lenient=settings.cassette_lenient,
        environment=settings.base_environment, proxies=settings.proxies,
        keys=tuple(provider.api_key for provider in settings.providers if provider.api_key),
    )  # fmt: skip


def stop_reason(config: pytest.Config) -> str:
    """Say in words why no further item can be judged: models out of reach, or money spent; empty while one can."""
    run, cap = run_info(config), load_settings(config).max_cost
    gateway, again = run.gateway, f"continue with --uniclaw-resume={run.directory.name}"
    if gateway is None:
        return ""
    if lost := gateway.lost():
        return f"{lost}; its log: {run.directory / 'models' / 'gateway.log'}; {again}"
    if cap is None:
        return ""
    with suppress(InfraError):
        spend = Gateway(gateway).spend()
        if spend.stopped or spend.known_usd >= cap:
            return f"the models have cost {spend.known_usd:.2f} USD: --uniclaw-max-cost={cap:g} is reached; {again}"
    return ""


def redactor_of(config: pytest.Config) -> Redactor:
    """Return the redactor of the session's secrets; before an item has asked for them, none has been read."""
    if REDACTOR not in config.stash:
        if INFO not in config.stash:
            return Redactor(())
        config.stash[REDACTOR] = Redactor(config.stash[INFO].context.secrets())
    return config.stash[REDACTOR]


def providers_of(settings: Settings) -> list[Provider]:
    """Return the providers of the settings as the gateway takes them. Raises SettingsError."""
    found = []
    for p in settings.providers:
        prices = {model: Price.model_validate(row) for model, row in p.prices.items()}
        fields = {"name": p.name, "base_url": p.base_url, "api_key": p.api_key, "prices": prices,
                  "stream_usage": p.stream_usage}  # fmt: skip
        found.append(_table(Provider, f"providers.{p.name}", fields))
    return found


def tuning_of(settings: Settings) -> Tuning:
    """Return the limits of upstream calls that the settings give. Raises SettingsError."""
    return _table(Tuning, "gateway", settings.gateway)


def _table(kind: type[Table], where: str, fields: Mapping[str, Any]) -> Table:
    """Read a table of the settings file. Raises SettingsError with the first thing that is wrong in it."""
    try:
        return kind.model_validate(dict(fields), strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        message = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{CONFIG_NAME}: [{where}] {key} = {problem['input']!r}: {message}")
    near = difflib.get_close_matches(key, kind.model_fields, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(kind.model_fields)}"
    raise SettingsError(f"{CONFIG_NAME}: [{where}] unknown key {key!r}; {hint}")


class SessionServices:
    """The controller's side: started once by :meth:`prepare`, taken down by :meth:`close`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._stack = ExitStack()
        self.prepared = False

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Check models, images and engine, then make the run directory and start reaper and gateway.

        Raises :class:`pytest.UsageError` (exit 4) before any container exists.
        """
        wanted = tuple(wanted)
        if self.prepared or not wanted:
            return
        self.prepared = True
        try:
            self._start(wanted, load_settings(self._config), choose_run(self._config))
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None
        except (UniclawError, OSError) as error:
            raise pytest.UsageError(f"the session could not be prepared: {error}") from None

    def _start(self, wanted: tuple[Wanted, ...], settings: Settings, name: RunName) -> None:
        providers, tuning = providers_of(settings), tuning_of(settings)
        check_packages(wanted, settings)
        needs_model = check_models(wanted, settings) | check_roles(wanted, settings)
        check_sandbox(wanted, settings)
        self._tell(notices(wanted, settings))
        open_run(name.directory.parent, name.directory.name)
        _die_like_interrupt()
        if settings.sandbox == "docker":
            from pytest_uniclaw.sandbox.reaper import start_reaper, sweep_expired

            sweep_expired()
            self._stack.callback(start_reaper(name.run).close)
        gateway = self._start_gateway(name, providers, tuning, settings.max_cost) if needs_model else None
        relay = self._start_relay(name, settings, gateway) if gateway else ""
        sockets = [str(gateway.agent_socket), str(gateway.admin_socket), relay] if gateway else None
        arguments = list(self._config.invocation_params.args)
        write_json(name.directory / SESSION_FILE, {"run": name.run, "gateway": sockets, "arguments": arguments})

    def _tell(self, lines: list[str]) -> None:
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        for line in lines:
            if reporter is not None:
                reporter.write_line(line, yellow=True)

    def _start_gateway(
        self, name: RunName, providers: Sequence[Provider], tuning: Tuning, cap: float | None
    ) -> GatewayAddress:
        process = start_gateway(
            name.directory / "models", providers, tuning=tuning, scratch=scratch_prefix(name.run), max_cost_usd=cap
        )
        self._stack.callback(process.close)
        return process.address

    def _start_relay(self, name: RunName, settings: Settings, gateway: GatewayAddress) -> str:
        """Start a relay where the engine cannot mount the gateway's socket; return its volume, else nothing."""
        if settings.sandbox != "docker" or settings.gateway_route == "mount":
            return ""
        from pytest_uniclaw.sandbox.relay import needs_relay, relayed

        if settings.gateway_route == "auto" and not needs_relay():
            return ""
        return self._stack.enter_context(relayed(name.run, gateway.agent_socket, ended=gateway.relay_ended))

    def interrupt(self) -> None:
        """Tell the workers to stop at once: what is left of them after 10 s is killed without finalizers."""
        if self.prepared:
            with suppress(OSError):
                stop_file(choose_run(self._config)).touch()

    def close(self) -> None:
        """Stop gateway and reaper; the reaper removes whatever this run still owns.

        Call it when no worker is left: the reaper takes one last look and ends.
        """
        self._stack.close()
        if self.prepared:
            with suppress(OSError):
                stop_file(choose_run(self._config)).unlink(missing_ok=True)


def _die_like_interrupt() -> None:
    """Let SIGTERM end the session as Ctrl-C does: finalizers run, reports are written, exit status 2."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def interrupt_once() -> None:
    """Let this worker be interrupted by its first SIGINT only: a second one would break off the finalizers.

    A terminal, the controller and execnet all send one. The controller kills a worker that takes longer than 10 s.
    """

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)


def watch_controller(config: pytest.Config) -> None:
    """Let this worker stop with its controller, which alone would be no reason for it to stop at once.

    A controller that was interrupted says so, and the worker is interrupted too. One that is gone ends the worker
    on the spot: nobody would read its results, and the reaper is at work.
    """
    parent, main = os.getppid(), threading.main_thread().ident
    stop = stop_file(choose_run(config))

    def watch() -> None:
        told = False
        while os.getppid() == parent:
            if main and not told and stop.exists():
                told = True
                signal.pthread_kill(main, signal.SIGINT)
            time.sleep(WATCH_SECONDS)
        os._exit(70)

    threading.Thread(target=watch, name="uniclaw-controller", daemon=True).start()
