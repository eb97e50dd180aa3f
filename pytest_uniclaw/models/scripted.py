"""The scripted provider: a step of a script as an answer, streamed or whole."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pytest_uniclaw.models.call import RunningCall
from pytest_uniclaw.models.chat import Json, chunks_of, completion, estimate_tokens
from pytest_uniclaw.models.failure import CallFailed, from_answer
from pytest_uniclaw.models.grants import CallClass, Tuning
from pytest_uniclaw.models.player import Position
from pytest_uniclaw.models.provider import Answer
from pytest_uniclaw.models.script import Fault, Say, ToolUse, Use

SHELL_TOOLS = (
    "exec", "exec_command", "run_shell_command", "shell", "bash", "execute_command", "run_command", "terminal",
)  # fmt: skip
"""Names under which agents offer a shell; the first one present is used."""
_COMMAND_ARGUMENTS = ("command", "cmd", "script", "shell_command")


class Scripted:
    """The backend for the provider ``script``. Its faults are not retried: they are there to exercise the agent."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning

    @asynccontextmanager
    async def open(self, body: Json, call: RunningCall) -> AsyncGenerator[Answer, None]:
        """See :class:`pytest_uniclaw.models.provider.Backend`."""
        call.tries = 1
        player = call.lease.player
        if player is None:
            raise CallFailed(CallClass.REPLAY_MISS, 409, "this grant has no script")
        position, step = player.next_step(body["messages"])
        stream = bool(body.get("stream"))
        if isinstance(step, Fault):
            broken = await self._fault(step, stream=stream)
        else:
            broken = None
        whole = _answer(body, call, position, Say("This answer stops in the mid") if isinstance(step, Fault) else step)
        yield _stream(whole, broken) if stream else whole

    async def _fault(self, fault: Fault, *, stream: bool) -> CallFailed:
        """Raise the failure of a fault, or return the one that breaks a stream."""
        if fault.kind == "hang":
            await asyncio.sleep(self._tuning.idle_seconds)
            raise CallFailed(CallClass.INFRA, 504, f"the script sent no byte for {self._tuning.idle_seconds:g} s")
        if fault.kind == "reset":
            raise CallFailed(CallClass.INFRA, 502, "the script cut the connection", answer="drop")
        if fault.kind == "body":
            text = "the script answered something that is no chat completion"
            raise CallFailed(CallClass.BAD_UPSTREAM, 200, text, upstream_status=200, answer="raw", raw=fault.body)
        if fault.kind == "fail":
            error = {"message": fault.message, "type": fault.type, "code": fault.code}
            wait = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
            failure = from_answer(fault.status, {"error": error}, wait)
            failure.status = fault.status
            raise failure
        failure = CallFailed(CallClass.STREAM_BROKEN, 502, "the script broke off its answer")
        if not stream:
            raise failure
        return failure


async def _stream(whole: Json, broken: CallFailed | None) -> AsyncGenerator[Json, None]:
    for chunk in chunks_of(whole):
        if broken is not None and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
            raise broken
        yield chunk
        await asyncio.sleep(0)  # let other calls in between two chunks


def _answer(body: Json, call: RunningCall, position: Position, step: Say | Use) -> Json:
    message: Json = {"role": "assistant", "content": None}
    if step.think:
        message["reasoning_content"] = step.think
    if isinstance(step, Say):
        text = step.text.replace("{turn}", str(position.turn))
        message["content"] = text.replace("{last_tool_output}", position.last_tool_output)
    else:
        prefix = f"call_{position.turn}_{position.said + 1}"
        message["tool_calls"] = [_tool_call(f"{prefix}_{i + 1}", use, body) for i, use in enumerate(step.calls)]
    sent, said = estimate_tokens(body["messages"], body.get("tools")), estimate_tokens([message])
    return completion(
        message,
        model=body["model"],
        ident=f"chatcmpl-{call.lease.id}-{call.n}",
        created=int(time.time()),
        usage={"prompt_tokens": sent, "completion_tokens": said, "total_tokens": sent + said},
        finish_reason="stop" if isinstance(step, Say) else "tool_calls",
    )


def _tool_call(ident: str, use: ToolUse, body: Json) -> Json:
    name, arguments = (use.name, use.arguments) if use.shell is None else _shell_call(use.shell, body)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def _shell_call(command: str, body: Json) -> tuple[str, str]:
    """The agent's own shell tool and the command in its argument's shape. Raises CallFailed when it offers none."""
    tools = body.get("tools")
    functions = [tool.get("function") for tool in (tools if isinstance(tools, list) else ()) if isinstance(tool, dict)]
    offered = {f["name"]: f for f in functions if isinstance(f, dict) and isinstance(f.get("name"), str)}
    name = next((known for known in SHELL_TOOLS if known in offered), None)
    if name is None:
        names = ", ".join(offered)[:500] or "none"
        text = f"the script wants a shell, and the request offers no known shell tool (tools: {names})"
        raise CallFailed(CallClass.REPLAY_MISS, 409, text)
    argument, as_list = _command_argument(offered[name].get("parameters"))
    return name, json.dumps({argument: ["bash", "-lc", command] if as_list else command}, ensure_ascii=False)


def _command_argument(schema: Any) -> tuple[str, bool]:
    """The name of the argument that takes the command, and whether it is a list of words."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required") if isinstance(schema, dict) else None
    names = [*_COMMAND_ARGUMENTS, *(required if isinstance(required, list) else ())]
    name = next((name for name in names if isinstance(name, str) and name in properties), _COMMAND_ARGUMENTS[0])
    found = properties.get(name)
    return name, isinstance(found, dict) and found.get("type") == "array"
