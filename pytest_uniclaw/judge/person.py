"""A simulated user with a model: it looks at what a person could see and writes what a person would write.

Its workspace is made of the public view, the visible conversation and the collected results. Of the handoff it learns
the attempt's state, never the score, so that follow-ups are no signal to climb on (design invariant 1).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_uniclaw.errors import GradingError, ModelRefused, SandboxLost, SimulatorError, TaskError
from pytest_uniclaw.judge.base import Scene, UserRefused
from pytest_uniclaw.judge.conversation import REASK, Limits, converse, enclose
from pytest_uniclaw.judge.phrases import explained, phrases
from pytest_uniclaw.judge.rewriter import CHARACTERS
from pytest_uniclaw.judge.strictjson import Rejected
from pytest_uniclaw.judge.toolset import TOOLS
from pytest_uniclaw.judge.visible import visible_conversation
from pytest_uniclaw.modelchoice import ModelChoice, RoleChoice
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.sandbox.base import Workspace, WorkspaceJob

VERSION = "1"
TOOL = "say_to_agent"
PROVOKED = frozenset({"content_filter", "context_length"})
"""Classes of refusals that come of what the request holds, and so of what the agent wrote."""
MODES = ("silent", "nudge", "instruction")
FILES_SHOWN = 40
"""How many delivered files the first message names."""
_PROMPTS = Path(__file__).parent / "prompts"
_LANGUAGES = {"en": "English", "zh": "Chinese (简体中文)"}
_FINAL: Json = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Send your next message to the agent.",
        "parameters": {
            "type": "object",
            "properties": {"mode": {"type": "string", "enum": list(MODES)}, "message": {"type": "string"}},
            "required": ["mode", "message"],
            "additionalProperties": False,
        },
    },
}


class Said(BaseModel):
    """What the model submits."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    mode: Literal["silent", "nudge", "instruction"]
    message: str = ""


@dataclass(frozen=True)
class ModelSimulator:
    """Writes the next user message with a model that has read-only tools over what a user sees.

    ``choice`` is the model, ``effort`` its reasoning effort, ``policy`` the task author's words to whoever plays the
    user, in place of the default policy; ``limits`` bound one conversation.
    """

    choice: ModelChoice | None = None
    effort: str = ""
    policy: str = ""
    limits: Limits = Limits(
        calls=16, tool_characters=200_000, images=8, tokens=600_000, seconds=300.0, call_seconds=120.0
    )
    name: str = "model"

    @property
    def needs_model(self) -> bool:
        """Always."""
        return True

    @property
    def version(self) -> str:
        """Changes with prompts, model, effort, policy, limits and, for a script, its content."""
        model = (self.choice.provider, self.choice.name) if self.choice else ()
        script = self.choice.script if self.choice else None
        played = script.read_bytes() if script and script.is_file() else b""
        prompts = (_prompt("user"), _prompt("user_policy"), _FINAL)
        parts = (prompts, model, played, self.effort, self.policy, self.limits)
        return f"{VERSION}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"

    def configured(self, role: RoleChoice) -> ModelSimulator:
        """Return the simulator for one task: its model, effort and policy."""
        return replace(
            self, choice=role.model or self.choice, effort=role.effort or self.effort,
            policy=role.guidance or self.policy,
        )  # fmt: skip

    def reply(self, scene: Scene) -> str:
        """Return the candidate for the next message, never an empty one.

        A workspace that dies is opened once more; when it dies again the user looks at nothing, for what lies in it is
        the executor's. Raises SimulatorError for a handoff that asks for no message and when no usable answer could be
        had (UserRefused where the provider refused what the request holds), InfraError for what the provider or the
        engine did not do.
        """
        if scene.handoff.verdict != "continue":
            raise SimulatorError(f"{scene.view.task_id}: no user message follows the verdict {scene.handoff.verdict}")
        for _ in range(2):
            with suppress(SandboxLost):
                return self._ask(scene)
        return self._ask(replace(scene, provider=None))

    def revise(self, scene: Scene, candidate: str, kinds: Sequence[str]) -> str:
        """Return another candidate in place of one that may not be sent. ``kinds`` say what it held, without values.

        Raises as :meth:`reply`.
        """
        shown = Said(mode="instruction", message=candidate).model_dump_json()
        ask = f"{REASK} This message cannot be sent:\n{explained(kinds)}\nWrite it again without that."
        earlier = [{"role": "assistant", "content": shown}, {"role": "user", "content": ask}]
        return self._ask(scene, earlier)

    def _ask(self, scene: Scene, earlier: Sequence[Json] = ()) -> str:
        if self.choice is None or scene.roles is None:
            raise SimulatorError(
                f"{scene.view.task_id}: a model must play the user, and none is chosen; "
                "name one with --uniclaw-simulator-model=PROVIDER/NAME"
            )
        opened = scene.roles.open("user_simulator", self.choice, turn=scene.visible.turn, effort=self.effort)
        try:
            with open_view(scene, tools=not earlier) as workspace, opened as chat:
                said = converse(
                    chat, workspace, system=self._system(scene), first=first_message(scene),
                    tools=TOOLS if workspace else (), final=_FINAL, accept=accept, limits=self.limits,
                    earlier=earlier,
                )  # fmt: skip
        except (GradingError, ModelRefused, TaskError) as error:
            kind = UserRefused if _is_provoked(error) else SimulatorError
            raise kind(f"{scene.view.task_id}: the simulated user did not answer: {error}") from None
        return said.message.strip() if said.mode != "silent" else please_go_on(scene)

    def _system(self, scene: Scene) -> str:
        policy = f"## How far you go\n\n{self.policy}" if self.policy else _prompt("user_policy").strip()
        return Template(_prompt("user")).substitute(
            language=_LANGUAGES[scene.view.language], policy=policy, tool=TOOL, characters=CHARACTERS
        )


def _is_provoked(error: Exception) -> bool:
    refused = error if isinstance(error, ModelRefused) else error.__cause__
    return isinstance(refused, ModelRefused) and refused.call_class in PROVOKED


@contextmanager
def open_view(scene: Scene, *, tools: bool = True) -> Iterator[Workspace | None]:
    """Open the workspace of a scene: request, visible conversation and results; None where there is no sandbox."""
    if scene.provider is None or scene.owner is None or not tools:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(scene.owner.run)) as scratch:
        folders = {"task": Path(scratch, "task"), "transcript": Path(scratch, "transcript")}
        for folder in folders.values():
            folder.mkdir()
        (folders["task"] / "request.md").write_text(scene.view.prompt + "\n", "utf-8", "replace")
        (folders["transcript"] / "conversation.md").write_text(visible_conversation(scene.transcript), "utf-8")
        if scene.results is not None and scene.results.is_dir():
            folders["results"] = scene.results
        with scene.provider.open_workspace(WorkspaceJob(scene.owner, folders)) as workspace:
            yield workspace


def accept(payload: Json) -> Said:
    """Return what a submission says. Raises Rejected."""
    try:
        said = Said.model_validate(payload)
    except ValidationError as error:
        raise Rejected(*(f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors())) from None
    if said.mode != "silent" and not any(c.isalnum() for c in said.message):
        raise Rejected(f"message: must hold words when mode is {said.mode}; use silent to say nothing")
    if len(said.message) > CHARACTERS:
        raise Rejected(f"message: must have at most {CHARACTERS} characters, not {len(said.message)}")
    return said


def please_go_on(scene: Scene) -> str:
    """Return the line for a user who has nothing to add, one that was not said yet where there is one."""
    lines = phrases(scene.view.language)
    fresh = [line for line in lines["neutral"] if line not in scene.history]
    return (fresh or lines["last_resort"])[0]


def first_message(scene: Scene) -> str:
    """Return what the model is told of the scene; everything of the agent's stands between delimiters."""
    visible = scene.visible
    names = "\n".join([*visible.files[:FILES_SHOWN], *["…"][: len(visible.files) > FILES_SHOWN]])
    stopped = "The agent seems to have stopped in the middle." if scene.handoff.attempt_state == "in_progress" else ""
    wrote = "\n".join(f"- {message}" for message in scene.history)
    parts = [
        f"Your request:\n{enclose(scene.view.prompt)}",
        f"What you wrote since:\n{enclose(wrote)}" if wrote else "",
        f"The agent's last words (turn {visible.turn}):\n{enclose(visible.answer or '(none)')}",
        f"Files in results/:\n{enclose(names)}" if names else "There is no file in results/.",
        f"{stopped} You are not satisfied with it yet. Look at it and write your next message.".strip(),
    ]
    return "\n\n".join(filter(None, parts))


@cache
def _prompt(name: str) -> str:
    return (_PROMPTS / f"{name}.md").read_text("utf-8")
