"""Settings: the table of options resolved, and the one place that reads the environment.

Every option can be given on the command line (``--uniclaw-<name>``, some with a short form), in pytest's ini file
(``uniclaw_<name>``) and in ``uniclaw.toml`` (``<name>``); the first of these that has it wins, then the default.
Provider keys come from the environment only: ``uniclaw.toml`` names the variable, never the key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.optiontable import CONFIG_NAME, DEFAULT_PRIVACY_FILE, OPTIONS, Option
from pytest_uniclaw.privacy import ENVIRONMENT_PREFIX
from pytest_uniclaw.status import PartialPolicy

MOST = 1000
"""The largest count: attempts of a task, judges of a panel, follow-ups, repeats."""
TABLES = ("providers", "gateway", "agents")
"""The tables of ``uniclaw.toml``; every other key is an option's."""
_EXPECTED = {
    "text": "a text", "path": "a path", "count": "a whole number", "seconds": "a number of seconds",
    "amount": "a number", "flag": "true or false",
}  # fmt: skip
"""What belongs to an option by its kind."""
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class ProviderSettings:
    """An OpenAI-compatible provider; ``stream_usage`` asks it for token counts in streams."""

    name: str
    base_url: str
    api_key: str = field(repr=False)
    stream_usage: bool = True
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentTables:
    """The tables ``[agents.NAME]`` of the settings file ``path``, as they are written."""

    path: Path = Path(CONFIG_NAME)
    tables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RoleOptions:
    """What the session chose for a hidden role: how it judges or speaks, its model, effort; empty = each task's own."""

    name: str
    model: str = ""
    effort: str = ""


@dataclass(frozen=True)
class Settings:
    """The resolved settings of a session; None, or an empty tuple, means each task's own value.

    ``missing_keys`` maps the providers that cannot be asked to the environment variable that lacks their key.
    ``gateway`` is the table of that name, as it is written.
    """

    agents: tuple[str, ...] = ()
    agent_tables: AgentTables = AgentTables()
    models: tuple[str, ...] = ()
    supervisor: RoleOptions = RoleOptions("auto")
    simulator: RoleOptions = RoleOptions("template")
    judges: str = "1"
    protocol: Literal["strict", "paper"] = "strict"
    max_cost: float | None = None
    cassette_record: Path | None = None
    cassette_replay: Path | None = None
    cassette_lenient: bool = False
    sandbox: str = "docker"
    sandbox_given: bool = False
    attempts: int = 1
    partial: PartialPolicy = PartialPolicy()
    gate: str = ""
    runs_dir: Path = Path("runs")
    resume: str = ""
    followups: int | None = None
    turn_seconds: float | None = None
    total_seconds: float | None = None
    silence_seconds: float = 600.0
    infra_retries: int = 1
    executor_user: str | None = None
    network: str | None = None
    gateway_route: str = "auto"
    memory: int | None = None
    snapshot_mode: bool = False
    keep: bool = False
    note: str = ""
    privacy_file: Path | None = None
    privacy_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    providers: tuple[ProviderSettings, ...] = ()
    missing_keys: Mapping[str, str] = field(default_factory=dict)
    gateway: Mapping[str, Any] = field(default_factory=dict)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def has_prices(self) -> bool:
        """Whether any model's price is known."""
        return any(provider.prices for provider in self.providers)


def resolve(
    options: Mapping[str, Any], ini: Mapping[str, Any], root: Path, environment: Mapping[str, str] | None = None
) -> Settings:
    """Merge command line, ini and ``uniclaw.toml`` into settings.

    ``options`` and ``ini`` are keyed by :attr:`Option.dest`; relative paths are taken from ``root``. Raises
    :class:`SettingsError` naming the option, its value and what was expected.
    """
    env = dict(os.environ if environment is None else environment)
    config_path = _path(options.get("uniclaw_config") or ini.get("uniclaw_config"), root)
    config = _read_config(config_path, root)
    texts = {o.name: _text(o, options, ini, config) for o in OPTIONS}
    providers, missing = _providers(config, env)
    _refuse_limits_of_the_paper(texts)
    return Settings(
        agents=_list(texts["agent"]),
        agent_tables=_agent_tables(config, config_path or root / CONFIG_NAME),
        models=_list(texts["model"]),
        supervisor=_role("supervisor", texts),
        simulator=_role("simulator", texts),
        judges=_judges(texts["judges"]),
        protocol=cast(Literal["strict", "paper"], _choice("protocol", texts) or "strict"),
        max_cost=_positive("max-cost", texts["max-cost"], "an amount of US dollars above 0"),
        cassette_record=_path(texts["cassette-record"], root),
        cassette_replay=_cassette(texts["cassette-replay"], root),
        cassette_lenient=_flag("cassette-lenient", texts),
        sandbox=texts["sandbox"],
        sandbox_given=bool(options.get("uniclaw_sandbox")),
        attempts=_count("attempts", texts["attempts"], least=1) or 1,
        partial=PartialPolicy.parse(texts["partial"]),
        gate=texts["gate"],
        runs_dir=_path(texts["runs-dir"], root) or root / "runs",
        resume=texts["resume"],
        followups=_count("followups", texts["followups"]),
        turn_seconds=_seconds("turn-seconds", texts["turn-seconds"]),
        total_seconds=_seconds("total-seconds", texts["total-seconds"]),
        silence_seconds=_seconds("silence-seconds", texts["silence-seconds"]) or 600.0,
        infra_retries=_count("infra-retries", texts["infra-retries"]) or 0,
        executor_user=_choice("executor-user", texts),
        network=_choice("network", texts),
        gateway_route=_choice("gateway-route", texts) or "auto",
        memory=parse_size(texts["memory"], "--uniclaw-memory") if texts["memory"] else None,
        snapshot_mode=_flag("snapshot-mode", texts),
        keep=_flag("keep", texts),
        note=texts["note"],
        privacy_file=_privacy_file(texts["privacy-file"], root),
        privacy_environment={k: v for k, v in env.items() if k.startswith(ENVIRONMENT_PREFIX)},
        providers=providers,
        missing_keys=missing,
        gateway=_gateway(config),
        proxies=_proxies(env),
        base_environment={k: env[k] for k in ("PATH", "LANG", "SSL_CERT_FILE", "TMPDIR") if k in env},
    )


def _proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables; no executor asks a proxy for what is in its own sandbox: the gateway, services."""
    found = {name: env[name] for name in PROXY_NAMES if env.get(name)}
    if found:
        excepted = ",".join(filter(None, ("127.0.0.1,localhost", env.get("NO_PROXY") or env.get("no_proxy"))))
        found |= {"NO_PROXY": excepted, "no_proxy": excepted}
    return found


def _refuse_limits_of_the_paper(texts: Mapping[str, str]) -> None:
    """Raise :class:`SettingsError` for a limit beside the paper's protocol, which has its own."""
    given = [name for name in ("followups", "turn-seconds", "total-seconds") if texts[name]]
    if texts["protocol"] == "paper" and given:
        raise SettingsError(
            f"--uniclaw-{given[0]}={texts[given[0]]} with --uniclaw-protocol=paper: that protocol has limits of its "
            "own (docs/reproducibility.md)\n  fix: leave out one of the two"
        )


def parse_size(text: str, where: str) -> int:
    """Read ``512m``, ``2g`` or a number of bytes. Raises :class:`SettingsError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise SettingsError(f"{where}={text}: expected a size such as 512m or 2g")
    return int(float(match[1]) * 1024 ** " kmg".index(match[2] or " "))


def environment_value(name: str) -> str | None:
    """Return one environment variable; the only way other modules may ask for one."""
    return os.environ.get(name)


def _read_config(path: Path | None, root: Path) -> dict[str, Any]:
    chosen = path or root / CONFIG_NAME
    if not chosen.is_file():
        if path is not None:
            raise SettingsError(f"--uniclaw-config={path}: no such file")
        return {}
    try:
        config = tomllib.loads(chosen.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, a number of endless digits, endless nesting
        raise SettingsError(f"{chosen}: not valid TOML: {error}") from None
    options = {o.key: o for o in OPTIONS}
    for key, value in config.items():
        if key in options:
            _refuse_shape(options[key], value, chosen)
        elif key not in TABLES:
            likely = TABLES if isinstance(value, dict) else tuple(options)
            near = difflib.get_close_matches(key, likely, 1) or difflib.get_close_matches(key, (*options, *TABLES), 1)
            raise SettingsError(f"{chosen}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return config


def _refuse_shape(option: Option, value: Any, path: Path) -> None:
    """Raise :class:`SettingsError` for a table or a list where the value of an option belongs."""
    if not isinstance(value, dict | list):
        return
    what = "a name" if option.metavar == "NAME" else _EXPECTED[option.kind]
    if isinstance(value, list):
        raise SettingsError(f"{path}: {option.key}: expected {what}, got a list")
    near = difflib.get_close_matches(option.key, TABLES, 1, 0.8)
    below = next((name for name, table in value.items() if isinstance(table, dict)), "NAME")
    meant = f"; did you mean [{near[0]}.{below}]?" if near else ", got a table"
    raise SettingsError(f"{path}: {option.key}: expected {what}{meant}")


def _text(option: Option, options: Mapping[str, Any], ini: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    for value in (options.get(option.dest), ini.get(option.dest), config.get(option.key)):
        if value is not None and value is not False and value != "":
            return str(value)
    return option.default


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _count(name: str, text: str, least: int = 0) -> int | None:
    if not text:
        return None
    number = _whole(text)
    if number is None or number < least:
        raise SettingsError(f"--uniclaw-{name}={text:.80}: expected a whole number of at least {least}")
    if number > MOST:
        raise SettingsError(f"--uniclaw-{name}={text:.80}: expected a whole number of at most {MOST}")
    return number


def _whole(text: str) -> int | None:
    """Return the number that a text of digits means, None for other texts; all beyond :data:`MOST` are one."""
    if not text.isdecimal():
        return None
    return int(text) if len(text.lstrip("0")) <= len(str(MOST)) and len(text) < 100 else MOST + 1


def _seconds(name: str, text: str) -> float | None:
    return _positive(name, text, "a positive number of seconds")


def _positive(name: str, text: str, what: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 10**7:
        raise SettingsError(f"--uniclaw-{name}={text}: expected {what}")
    return value


def _role(name: str, texts: Mapping[str, str]) -> RoleOptions:
    """Read a hidden role's options; ``script:FILE`` is the model role with a scripted model."""
    chosen, model = texts[name], texts[f"{name}-model"]
    if chosen.startswith("script:"):
        if model:
            raise SettingsError(f"--{name}={chosen}: names the model already; leave out --uniclaw-{name}-model={model}")
        chosen, model = "model", chosen
    return RoleOptions(chosen, model, texts[f"{name}-effort"])


def _judges(text: str) -> str:
    number = _whole(text)
    if text != "auto" and (number is None or number % 2 == 0 or number > MOST):
        raise SettingsError(f"--uniclaw-judges={text:.80}: expected an odd number such as 3, or auto")
    return text


def _cassette(text: str, root: Path) -> Path | None:
    path = _path(text, root)
    if path is not None and not path.is_dir():
        raise SettingsError(f"--uniclaw-cassette-replay={text}: no such folder (looked for {path})")
    return path


def _flag(name: str, texts: Mapping[str, str]) -> bool:
    text = texts[name].lower()
    if text not in {"", "true", "1", "yes", "false", "0", "no"}:
        raise SettingsError(f"--uniclaw-{name}={text}: expected true or false")
    return text in {"true", "1", "yes"}


def _choice(name: str, texts: Mapping[str, str]) -> str | None:
    choices = next(o.choices for o in OPTIONS if o.name == name)
    if texts[name] and texts[name] not in choices:
        raise SettingsError(f"--uniclaw-{name}={texts[name]}: expected one of {', '.join(choices)}")
    return texts[name] or None


def _path(text: object, root: Path) -> Path | None:
    return root / Path(str(text)).expanduser() if text else None


def _privacy_file(text: str, root: Path) -> Path | None:
    path = _path(text, root)
    if path is not None and not path.is_file():
        raise SettingsError(f"--uniclaw-privacy-file={text}: no such file")
    default = root / DEFAULT_PRIVACY_FILE
    return path or (default if default.is_file() else None)


def _providers(
    config: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[tuple[ProviderSettings, ...], dict[str, str]]:
    given = config.get("providers", {})
    if not isinstance(given, dict):
        raise SettingsError(f"{CONFIG_NAME}: providers: expected tables [providers.NAME], got {given!r:.80}")
    tables = dict(given)
    tables.setdefault(
        "openai", {"base_url": env.get("OPENAI_BASE_URL", "https://api.openai.com/v1"), "api_key_env": "OPENAI_API_KEY"}
    )
    found: list[ProviderSettings] = []
    missing: dict[str, str] = {}
    for name, table in tables.items():
        known = {"base_url", "api_key_env", "prices", "stream_usage"}
        if not isinstance(table, dict) or set(table) - known or "base_url" not in table:
            given = ", ".join(map(str, table)) if isinstance(table, dict) else type(table).__name__
            raise SettingsError(
                f"{CONFIG_NAME}: [providers.{name}] takes base_url, api_key_env, prices and stream_usage, got {given}"
            )
        asks = table.get("stream_usage", True)
        if not isinstance(asks, bool):
            raise SettingsError(f"{CONFIG_NAME}: [providers.{name}] stream_usage: expected true or false")
        prices = _prices(str(name), table.get("prices", {}))
        variable = str(table.get("api_key_env", ""))
        if variable and not env.get(variable):
            missing[str(name)] = variable
            continue
        found.append(ProviderSettings(str(name), str(table["base_url"]), env.get(variable, ""), asks, prices))
    return tuple(found), missing


def _agent_tables(config: Mapping[str, Any], path: Path) -> AgentTables:
    """Return the tables of agents; what is in them is read by :mod:`pytest_uniclaw.agents.command_table`."""
    given = config.get("agents", {})
    if not isinstance(given, dict):
        raise SettingsError(
            f"{path}: agents = {given!r:.80}: expected tables [agents.NAME]\n  fix: to choose an agent write agent = …"
        )
    return AgentTables(path, dict(given))


def _gateway(config: Mapping[str, Any]) -> dict[str, Any]:
    table = config.get("gateway", {})
    if not isinstance(table, dict):
        raise SettingsError(f"{CONFIG_NAME}: gateway = {table!r}: expected a table [gateway]")
    return dict(table)


def _prices(provider: str, table: Any) -> dict[str, dict[str, float]]:
    """Read ``[providers.NAME.prices."MODEL"]``: US dollars per million tokens of each kind."""
    kinds = ("input", "output", "cache_read", "cache_write")
    where = f"{CONFIG_NAME}: [providers.{provider}.prices]"
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise SettingsError(f'{where}: expected a table per model, such as "gpt-5.4" = {{input = 1.25, output = 10.0}}')
    for model, row in table.items():
        for kind, value in row.items():
            if kind not in kinds:
                raise SettingsError(f"{where}: {model}: unknown kind {kind!r} (known: {', '.join(kinds)})")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**6:
                raise SettingsError(f"{where}: {model}.{kind} = {value!r}: expected US dollars per million tokens")
    return {str(model): {kind: float(value) for kind, value in row.items()} for model, row in table.items()}


def edict_source(environment: Mapping[str, str] | None = None) -> str:
    """Return the folder of the user's own copy of EDICT, empty where none is named."""
    return (os.environ if environment is None else environment).get("UNICLAW_EDICT_SRC", "")
