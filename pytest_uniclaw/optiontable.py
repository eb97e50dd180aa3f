"""The table of options: one row makes the command-line option, the ini name and the key of ``uniclaw.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CONFIG_NAME = "uniclaw.toml"
DEFAULT_PRIVACY_FILE = "privacy.local.env"


@dataclass(frozen=True)
class Option:
    """One option. ``short`` is its short command-line form, ``kind`` how its text is read."""

    name: str
    help: str
    kind: Literal["text", "count", "seconds", "amount", "flag", "path"] = "text"
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
        "hidden supervisor that grades: auto (checks where a task has them, a model for the rest), checks, model, "
        "codex, or script:FILE (default: %(default)s)",
        default="auto",
        short="--supervisor",
        metavar="NAME",
    ),
    Option(
        "simulator",
        "user simulator that writes follow-ups: template, model, or script:FILE (default: %(default)s)",
        default="template",
        short="--simulator",
        metavar="NAME",
    ),
    Option(
        "sandbox",
        "docker, or local, which is no isolation; from ini file or uniclaw.toml it takes trusted agents only "
        "(default: %(default)s)",
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
        "supervisor-model",
        "model of the supervisor, PROVIDER/NAME or script:FILE; default: each task's codex.supervisor",
        metavar="MODEL",
    ),
    Option("supervisor-effort", "reasoning effort of the supervisor's model", metavar="EFFORT"),
    Option(
        "simulator-model",
        "model of the user simulator, PROVIDER/NAME or script:FILE; default: each task's codex.user_simulator",
        metavar="MODEL",
    ),
    Option("simulator-effort", "reasoning effort of the user simulator's model", metavar="EFFORT"),
    Option(
        "judges",
        "how many judges a model supervisor is: 1, an odd number for a panel, or auto for 3 near the threshold "
        "(default: %(default)s)",
        default="1",
        metavar="N",
    ),
    Option(
        "protocol",
        "strict (this project's statuses and denominators) or paper (the published set-up) (default: %(default)s)",
        default="strict",
        metavar="NAME",
        choices=("strict", "paper"),
    ),
    Option(
        "max-cost",
        "stop the session once its model calls have cost this much",
        kind="amount",
        metavar="USD",
    ),
    Option("cassette-record", "record every model call as a cassette", kind="path", metavar="DIR"),
    Option("cassette-replay", "answer model calls from a cassette, with no provider", kind="path", metavar="DIR"),
    Option("cassette-lenient", "let a replayed call differ from the recorded one; every drift is listed", kind="flag"),
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
    Option(
        "gateway-route",
        "how containers reach the model gateway: by its mounted socket, by a relay container, or as the engine needs",
        metavar="ROUTE",
        default="auto",
        choices=("auto", "mount", "relay"),
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
    Option("note", "a remark for the summaries in the terminal and in the HTML report", metavar="TEXT"),
)
"""Every option of the plugin, in the order of ``--help``."""
