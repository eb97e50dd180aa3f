"""The agents' side of the gateway, for holders of a virtual key.

``/v1/chat/completions``, ``/v1/responses`` (translated, see :mod:`pytest_uniclaw.models.bridge`) and ``/v1/models``.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from pytest_uniclaw.models.bridge import Extras
from pytest_uniclaw.models.call import LARGE, RunningCall
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.encoding import decoded, too_large
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass, Provider
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.provider import Backend
from pytest_uniclaw.models.registry import Lease, Registry
from pytest_uniclaw.models.wire import ChatWire, ResponsesWire, Wire

MAX_BODY = 64 << 20
"""Bytes of a request, after decompression."""
MAX_DEPTH = 100
"""Levels of nesting in a request; deeper ones would exhaust the stack of whoever walks them."""
MAX_NODES = 200_000
"""Values in a request, keys not counted: a small compressed body can unpack to millions."""
MAX_OUTPUT_TOKENS = (1 << 31) - 1
"""The largest output limit that a request may state."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_RESPONSES = "/v1/responses"


class AgentApp:
    """The handlers. Role and attempt of a call come from its key, never from the request."""

    def __init__(
        self, registry: Registry, ledger: Ledger, backends: Mapping[str, Backend], providers: Mapping[str, Provider]
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._backends = backends
        self._providers = providers
        self._extras: WeakKeyDictionary[Lease, Extras] = WeakKeyDictionary()

    def application(self) -> web.Application:
        """The aiohttp application; anything but its routes is a 404 in OpenAI's shape."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_openai_errors])
        app.router.add_post("/v1/chat/completions", self._call)
        app.router.add_post(_RESPONSES, self._call)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        lease = self._lease(request)
        model = {"id": lease.request.model, "object": "model", "created": 0, "owned_by": "uniclaw"}
        return web.json_response({"object": "list", "data": [model]})

    async def _call(self, request: web.Request) -> web.StreamResponse:
        lease = self._lease(request)
        task = asyncio.current_task()
        assert task is not None
        call = RunningCall(lease, self._ledger)
        lease.running.add(task)
        try:
            return await self._answer(request, call)
        except CallFailed as failure:
            return _failed(request, call, failure)
        except (asyncio.CancelledError, ConnectionResetError):
            call.client_left()
            raise
        except Exception as error:
            return _failed(request, call, _unexpected(error, call.call_class))
        finally:
            lease.running.discard(task)
            call.close()

    def _lease(self, request: web.Request) -> Lease:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        lease = self._registry.find(key.strip()) if scheme.lower() == "bearer" else None
        if lease is None:
            text = "unknown, revoked or expired key; the gateway takes its own uck- keys only"
            raise CallFailed(CallClass.AUTH, 401, text)
        return lease

    async def _answer(self, request: web.Request, call: RunningCall) -> web.StreamResponse:
        await call.enter()
        body, size = await _read(request, call)
        call.stream = body.get("stream") is True
        extras = self._extras.setdefault(call.lease, Extras())
        prepare = partial(_wire, request.path, body, call, extras)
        wire = await asyncio.to_thread(prepare) if size > LARGE else prepare()
        await call.admit(wire.chat, size, wire.notes)
        async with self._backends[call.lease.request.provider].open(self._outgoing(wire.chat, call), call) as answer:
            if isinstance(answer, dict):
                call.completed(answer)
                call.close()
                return web.json_response(wire.whole(answer))
            return await _stream(request, call, answer, wire)

    def _outgoing(self, body: Json, call: RunningCall) -> Json:
        """The request for the provider: its own model name, and usage asked for in streams."""
        asked = call.lease.request
        outgoing = body | {"model": asked.upstream_model or asked.model}
        provider = self._providers.get(asked.provider)
        usage = provider is None or provider.stream_usage
        if call.stream and usage:
            options = body.get("stream_options")
            outgoing["stream_options"] = (options if isinstance(options, dict) else {}) | {"include_usage": True}
        return outgoing


def _wire(path: str, body: Json, call: RunningCall, extras: Extras) -> Wire:
    """The checked request on the wire of its path; safe to run in a thread. Raises CallFailed."""
    _check(body, call.lease.request.model)
    wire = ResponsesWire(body, extras, f"{call.lease.id}-{call.n}") if path == _RESPONSES else ChatWire(body)
    _check_messages(wire.chat)
    return wire


async def _stream(
    request: web.Request, call: RunningCall, answer: AsyncIterator[Json], wire: Wire
) -> web.StreamResponse:
    """Pass chunks on as they come. The call is written down before the client can know that it ended."""
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    data = wire.begin()
    try:
        async for chunk in answer:
            call.chunk(chunk)
            data += wire.chunk(chunk)
            if data:
                await response.write(data)
            data = b""
    except ConnectionResetError:
        raise
    except Exception as error:
        failure = error if isinstance(error, CallFailed) else _unexpected(error, call.call_class)
        call.failed(failure)
        call.close()
        await response.write(data + wire.failed(failure))
    else:
        call.completed()
        call.close()
        await response.write(data + wire.end())
    await response.write_eof()
    return response


def _failed(request: web.Request, call: RunningCall, failure: CallFailed) -> web.Response:
    """Write a failed call down, and answer it."""
    call.failed(failure)
    call.close()
    response = _error(request, failure)
    if call.hang_up:
        response.force_close()
    return response


async def _read(request: web.Request, call: RunningCall) -> tuple[Json, int]:
    """The decoded body and its size in bytes. Raises CallFailed for what is not a JSON object."""
    data = await _received(request, call)
    if coding := request.headers.get("content-encoding", ""):
        data = await _unpacked(data, coding, call)
    return await asyncio.to_thread(_parsed, data) if len(data) > LARGE else _parsed(data), len(data)


async def _received(request: web.Request, call: RunningCall) -> bytes:
    """The body as it was sent; every piece is counted before the next one is read. Raises CallFailed."""
    data = bytearray()
    try:
        while piece := await request.content.readany():
            call.hold(len(piece))
            data += piece
            if len(data) > MAX_BODY:
                raise too_large(MAX_BODY)
    except web.RequestPayloadError as error:
        raise CallFailed(CallClass.BAD_REQUEST, 400, f"the body cannot be read: {error}") from error
    return bytes(data)


async def _unpacked(data: bytes, coding: str, call: RunningCall) -> bytes:
    """What a compressed body says; meanwhile it counts as one of the largest. Raises CallFailed."""
    async with call.lease.bounds.unpacking:
        call.hold(MAX_BODY)
        plain = await asyncio.to_thread(decoded, data, coding, MAX_BODY)
        call.let_go(MAX_BODY + len(data) - len(plain))
    return plain


def _parsed(data: bytes) -> Json:
    """The JSON object of a body. Raises CallFailed."""
    if _crowded(data):
        raise _too_many()
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CallFailed(CallClass.BAD_REQUEST, 400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise CallFailed(CallClass.BAD_REQUEST, 400, "the body is not a JSON object")
    _check_shape(body)
    return body


def _crowded(data: bytes) -> bool:
    """Whether JSON text has more than MAX_NODES values for certain; parsing such a text would hold up every call."""
    if len(data) <= MAX_NODES:
        return False
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * MAX_NODES:  # a value is at most two texts, itself and its key
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return max(outside.count(b","), outside.count(b"["), outside.count(b"{")) > MAX_NODES


def _check_shape(body: Json) -> None:
    """Refuse what has too many values or levels; no larger level is built. Raises CallFailed."""
    level: list[Any] = [body]
    nodes = 1
    for _ in range(MAX_DEPTH):
        groups = [n.values() if isinstance(n, dict) else n for n in level if isinstance(n, dict | list)]
        nodes += sum(map(len, groups))
        if nodes > MAX_NODES:
            raise _too_many()
        level = [child for group in groups for child in group]
        if not level:
            return
    raise CallFailed(CallClass.BAD_REQUEST, 400, f"the body is nested deeper than {MAX_DEPTH} levels")


def _too_many() -> CallFailed:
    return CallFailed(CallClass.BAD_REQUEST, 400, f"the body has more than {MAX_NODES} values")


def _check(body: Json, model: str) -> None:
    """Refuse what no provider could answer, or what the key does not cover. Raises CallFailed."""
    if body.get("model") != model:
        text = f"the model {body.get('model')!r} does not exist for this key; it may use {model!r}"
        raise CallFailed(CallClass.BAD_REQUEST, 404, text, code="model_not_found")
    if not isinstance(body.get("stream"), bool | None):
        raise CallFailed(CallClass.BAD_REQUEST, 400, "'stream' must be true or false")
    for name in _LIMITS:
        limit = body.get(name)
        if limit is not None and not (type(limit) is int and 0 <= limit <= MAX_OUTPUT_TOKENS):
            text = f"'{name}' must be a whole number from 0 to {MAX_OUTPUT_TOKENS}"
            raise CallFailed(CallClass.BAD_REQUEST, 400, text)
    if (choices := body.get("n")) is not None and not (type(choices) is int and choices == 1):
        raise CallFailed(CallClass.BAD_REQUEST, 400, "'n' must be 1: a call gets one answer")


def _check_messages(body: Json) -> None:
    """Refuse a chat request without messages. Raises CallFailed."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CallFailed(CallClass.BAD_REQUEST, 400, "'messages' must be a list of at least one message")
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise CallFailed(CallClass.BAD_REQUEST, 400, f"'messages[{index}]' must be an object with a known role")


def _error(request: web.Request, failure: CallFailed) -> web.Response:
    if failure.answer == "drop" and request.transport is not None:
        request.transport.abort()
    if failure.answer == "raw":
        headers = {"x-uniclaw-class": failure.call_class.value}
        return web.Response(status=failure.status, text=failure.raw, content_type="text/html", headers=headers)
    return web.json_response(failure.body(), status=failure.status, headers=failure.headers())


def _unexpected(error: Exception, found: CallClass) -> CallFailed:
    """The failure for an error of the gateway itself, of the call's class so far; the log says where it was."""
    traceback.print_exception(error)
    status = 400 if found is CallClass.BAD_REQUEST else 500
    return CallFailed(found, status, f"the gateway cannot handle this request: {type(error).__name__}")


@web.middleware
async def _openai_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """Everything the agent hears of an error has OpenAI's shape."""
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except CallFailed as failure:
        return _error(request, failure)
    except web.HTTPException as error:
        known = "/v1/chat/completions, /v1/responses and /v1/models"
        text = f"{request.method} {request.path}: {error.reason}; here are {known}"
        return _error(request, CallFailed(CallClass.BAD_REQUEST, error.status, text))
    except ConnectionResetError:
        raise
    except Exception as error:
        return _error(request, _unexpected(error, CallClass.INFRA))
