"""A chat provider on loopback that answers each model by acts of its own, and the faults a provider can have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pytest_uniclaw.models.chat import chunks_of, completion
from tests.support.scripted_upstream import Act, Handler, Upstream, error, piece

Json = dict[str, Any]
Said = str | Json
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}


class FaultyProvider(Upstream):
    """Plays the acts of the model that is asked for, in order, the last one for ever.

    It is as strict as the strictest of the real ones about what it said before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lanes: dict[str, list[Act]] = {}

    def next_act(self, body: Any) -> Act:
        lane = self.lanes.get(body["model"])
        if wrong := [message for message in body["messages"] if not is_acceptable(message)]:
            return error(400, f"this message cannot be read: {wrong[0]}", "invalid_request_error")
        return self.next_of(lane) if lane else error(404, f"there is no model {body['model']}")

    def asked(self, model: str) -> list[Any]:
        """The bodies of the requests for a model so far."""
        return [request["body"] for request in list(self.requests) if request["body"]["model"] == model]


def is_acceptable(message: Json) -> bool:
    """Whether a message has words or calls, and its calls have arguments that are JSON objects."""
    calls = message.get("tool_calls") or []
    try:
        parsed = [json.loads(call["function"]["arguments"], parse_constant=int) for call in calls]
    except ValueError:
        return False
    return bool(message.get("content") or calls) and all(isinstance(value, dict) for value in parsed)


def answer(said: Said | Callable[[str], Said], usage: Json = USAGE) -> Act:
    """An answer, streamed or whole as it was asked for: a text, a message, or what becomes one by the judge's nonce."""

    def act(handler: Handler) -> None:
        made = said(nonce_in(handler.body)) if callable(said) else said
        message = {"role": "assistant", "content": made} if isinstance(made, str) else made
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"model": handler.body["model"], "ident": "x", "created": 1, "usage": usage}
        whole = completion(message, finish_reason=finish, **head)
        if handler.body.get("stream"):
            handler.events(list(chunks_of(whole)))
        else:
            handler.whole(200, whole)

    return act


def nonce_in(body: Json) -> str:
    """The word that a judge's instructions ask to be repeated, else nothing."""
    found = re.search(r"must be `(\w+)`", str(body["messages"][0]["content"]))
    return found[1] if found else ""


def slow_down(**headers: str) -> Act:
    """A rate limit of the model that is asked for, so that no other model has to wait."""

    def act(handler: Handler) -> None:
        message = f"Rate limit reached for {handler.body['model']}"
        error(429, message, "requests", "rate_limit_exceeded", **headers)(handler)

    return act


def cut_off(handler: Handler) -> None:
    """An answer that breaks off in its middle."""
    if handler.body.get("stream"):
        handler.events([piece("This answer stops in the mid")], done=False)
        return
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "This answer st')
    handler.wfile.flush()
    handler.hang_up()


def hang(handler: Handler) -> None:
    """No byte."""
    handler.server.release.wait(60)


def page(status: int) -> Act:
    """A web page where an answer should be."""
    return lambda handler: handler.whole(status, "<html><h1>We will be right back</h1></html>", "text/html")


QUOTA = error(429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota")
SERVER = error(500, "The server had an error")
WRONG_KEY = error(401, "Incorrect API key provided", "invalid_request_error", "invalid_api_key")
TOO_LONG = error(400, "maximum context length is 8192 tokens", "invalid_request_error", "context_length_exceeded")
FILTERED = error(400, "The prompt was blocked", "invalid_request_error", "content_filter")
UNKNOWN_PARAMETER = error(400, "Unrecognized request argument supplied: x", "invalid_request_error")
