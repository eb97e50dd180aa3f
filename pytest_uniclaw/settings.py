"""Settings: one table of options, and the one place that reads the environment.

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
from typing import Any, Literal

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.status import PartialPolicy

CONFIG_NAME = "uniclaw.toml"
PRIVACY_PREFIX = "UNICLAW_PRIVACY_"
DEFAULT_PRIVACY_FILE = "privacy.local.env"
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Option:
    """One option. ``short`` is its short command-line form, ``kind`` how its text is read."""

    name: str
    help: str
    kind: Literal["text", "count", "seconds", "flag", "path"] = "text"
    default: str = ""
    short: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The canonical command-line form."""
        return f"--uniclaw-{self.name}"

    @property
    def dest(self) -> str:
        """The attribute of pytest's parsed options."""
        return f"uniclaw_{self.name.replace('-', '_')}"

    @property
    def key(self) -> str:
        """The key in ``uniclaw.toml``."""
        return self.name.replace("-", "_")


OPTIONS = (
    Option(
        "agent",
        "executor: NAME or NAME@VERSION; several, separated by commas, run every task with each; "
        "default: each task's agent_sys",
        short="--agent",
        metavar="NAME",
    ),
    Option(
        "model",
        "model of the executor: PROVIDER/NAME, 'script' (the task's script/model.yaml) or 'script:FILE'; "
        "several, separated by commas, run every task with each; default: each task's model",
        short="--model",
        metavar="MODEL",
    ),
    Option(
        "supervisor",
        "hidden supervisor that grades (default: %(default)s)",
        default="checks",
        short="--supervisor",
        metavar="NAME",
    ),
    Option(
        "simulator",
        "user simulator that writes follow-ups (default: %(default)s)",
        default="template",
        short="--simulator",
        metavar="NAME",
    ),
    Option(
        "sandbox",
        "docker, or local for trusted agents only (default: %(default)s)",
        default="docker",
        short="--sandbox",
        metavar="NAME",
    ),
    Option(
        "attempts",
        "run every task K times, each in fresh containers (default: %(default)s)",
        kind="count",
        default="1",
        short="--attempts",
        metavar="K",
    ),
    Option(
        "partial",
        "what a partial success is to pytest: xfail:FLOOR or fail (default: %(default)s)",
        default="xfail:0.5",
        short="--partial",
        metavar="POLICY",
    ),
    Option(
        "gate",
        "exit 9 unless these hold, e.g. 'pr>=0.4, as>=0.6, coverage>=0.95'",
        short="--gate",
        metavar="RULES",
    ),
    Option(
        "runs-dir", "where run directories are made (default: %(default)s)", kind="path", default="runs", metavar="DIR"
    ),
    Option(
        "resume",
        "continue a run directory (or 'latest'): finished attempts with equal digests are replayed",
        metavar="RUN",
    ),
    Option("config", f"settings file (default: {CONFIG_NAME} in the root directory)", kind="path", metavar="FILE"),
    Option("followups", "most user follow-ups; default: each task's own", kind="count", metavar="N"),
    Option("turn-seconds", "executor time of one turn; default: each task's own", kind="seconds", metavar="S"),
    Option("total-seconds", "executor time of one attempt; default: each task's own", kind="seconds", metavar="S"),
    Option(
        "silence-seconds",
        "end a turn without output or model call for S seconds (default: %(default)s)",
        kind="seconds",
        default="600",
        metavar="S",
    ),
    Option(
        "infra-retries",
        "tries after an infrastructure error (default: %(default)s)",
        kind="count",
        default="1",
        metavar="N",
    ),
    Option("executor-user", "account of the executor, over each task's own", metavar="USER", choices=("agent", "root")),
    Option(
        "network", "network of the executor, over each task's own", metavar="MODE", choices=("isolated", "internet")
    ),
    Option("memory", "memory limit of the executor, e.g. 3g, over each task's and agent's own", metavar="SIZE"),
    Option("snapshot-mode", "give tasks that have one their snapshot prompt and sources", kind="flag"),
    Option(
        "privacy-file",
        f"values of keys that tasks declare in .privacy (default: {DEFAULT_PRIVACY_FILE} if there)",
        kind="path",
        metavar="FILE",
    ),
    Option(
        "keep", "leave the executor's container of a non-pass running for a look; prints how to enter it", kind="flag"
    ),
)
"""Every option of the plugin, in the order of ``--help``."""


@dataclass(frozen=True)
class ProviderSettings:
    """An OpenAI-compatible provider; ``key_variable`` names the environment variable that held the key."""

    name: str
    base_url: str
    api_key: str = field(repr=False)
    key_variable: str = ""


@dataclass(frozen=True)
class Settings:
    """The resolved settings of a session; None, or an empty tuple, means each task's own value."""

    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    supervisor: str = "checks"
    simulator: str = "template"
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
    memory: int | None = None
    snapshot_mode: bool = False
    keep: bool = False
    privacy_file: Path | None = None
    privacy_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    providers: tuple[ProviderSettings, ...] = ()
    missing_key_variables: tuple[str, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_environment: Mapping[str, str] = field(default_factory=dict, repr=False)


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
    return Settings(
        agents=_list(texts["agent"]),
        models=_list(texts["model"]),
        supervisor=texts["supervisor"],
        simulator=texts["simulator"],
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
        memory=parse_size(texts["memory"], "--uniclaw-memory") if texts["memory"] else None,
        snapshot_mode=_flag("snapshot-mode", texts),
        keep=_flag("keep", texts),
        privacy_file=_privacy_file(texts["privacy-file"], root),
        privacy_environment={k: v for k, v in env.items() if k.startswith(PRIVACY_PREFIX)},
        providers=providers,
        missing_key_variables=missing,
        proxies={k: env[k] for k in PROXY_NAMES if k in env},
        base_environment={k: env[k] for k in ("PATH", "LANG", "SSL_CERT_FILE", "TMPDIR") if k in env},
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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{chosen}: not valid TOML: {error}") from None
    known = {o.key for o in OPTIONS} | {"providers"}
    for key in config:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise SettingsError(f"{chosen}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return config


def _text(option: Option, options: Mapping[str, Any], ini: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    for value in (options.get(option.dest), ini.get(option.dest), config.get(option.key)):
        if value not in (None, "", False):
            return str(value)
    return option.default


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _count(name: str, text: str, least: int = 0) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise SettingsError(f"--uniclaw-{name}={text}: expected a whole number of at least {least}")
    return int(text)


def _seconds(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 10**7:
        raise SettingsError(f"--uniclaw-{name}={text}: expected a positive number of seconds")
    return value


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
) -> tuple[tuple[ProviderSettings, ...], tuple[str, ...]]:
    tables = dict(config.get("providers", {}))
    tables.setdefault(
        "openai", {"base_url": env.get("OPENAI_BASE_URL", "https://api.openai.com/v1"), "api_key_env": "OPENAI_API_KEY"}
    )
    found, missing = [], []
    for name, table in tables.items():
        if not isinstance(table, dict) or set(table) - {"base_url", "api_key_env"} or "base_url" not in table:
            given = ", ".join(map(str, table)) if isinstance(table, dict) else type(table).__name__
            raise SettingsError(f"{CONFIG_NAME}: [providers.{name}] takes base_url and api_key_env, got {given}")
        variable = str(table.get("api_key_env", ""))
        if variable and not env.get(variable):
            missing.append(variable)
            continue
        found.append(ProviderSettings(str(name), str(table["base_url"]), env.get(variable, ""), variable))
    return tuple(found), tuple(missing)
