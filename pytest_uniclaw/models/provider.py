"""An OpenAI-compatible provider: one pooled session, retries before the first byte, cool-downs that calls share."""

from __future__ import annotations

import asyncio
import io
import ipaddress
import json
import random
import re
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from pytest_uniclaw.models.call import RunningCall
from pytest_uniclaw.models.chat import Json, chunks_of, is_completion
from pytest_uniclaw.models.failure import CallFailed, from_answer, from_event
from pytest_uniclaw.models.grants import CallClass, Provider, Tuning
from pytest_uniclaw.models.sse import Chunk, EventParser

Answer = Json | AsyncIterator[Json]
"""A whole chat.completion, or its chunks as they come; iterating raises CallFailed when the stream breaks."""


class Backend(Protocol):
    """What answers a call: a provider, or the script."""

    def open(self, body: Json, call: RunningCall) -> AbstractAsyncContextManager[Answer]:
        """Ask for a completion. Raises CallFailed before the first byte; leaving the context ends the upstream call."""


class CoolDown:
    """Until when a provider and each of its models are left alone after a rate limit.

    A provider that names the model in its refusal limits that model alone. Otherwise nobody can tell: all of its models
    are left alone, but for no longer than ``longest`` seconds where they did not meet the limit themselves.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._all_until = 0.0
        self._until: dict[str, float] = {}

    def note(self, model: str, seconds: float, said: str) -> None:
        """A rate limit was met; ``said`` is the provider's message."""
        now = asyncio.get_running_loop().time()
        self._until[model] = max(now + seconds, self._until.get(model, 0.0))
        if not re.search(rf"(?<![\w.-]){re.escape(model)}(?![\w-]|\.\d)", said):
            self._all_until = max(now + min(seconds, self._longest), self._all_until)

    def left(self, model: str) -> float:
        """Seconds for which this model is still left alone; not positive when it may be asked."""
        return max(self._all_until, self._until.get(model, 0.0)) - asyncio.get_running_loop().time()


class Upstream:
    """The backend for one provider."""

    def __init__(self, provider: Provider, tuning: Tuning) -> None:
        self._provider = provider
        self._tuning = tuning
        self._url = f"{provider.base_url}/chat/completions"
        self._proxy = _proxy_for(self._url)
        self._cooling = CoolDown(tuning.give_up_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def open(self, body: Json, call: RunningCall) -> AsyncGenerator[Answer, None]:
        """See :class:`Backend`."""
        response, answer = await self._ask(body, call)
        try:
            yield answer
        finally:
            if isinstance(answer, AsyncGenerator):
                await answer.aclose()
            response.close()

    async def _ask(self, body: Json, call: RunningCall) -> tuple[aiohttp.ClientResponse, Answer]:
        """Try until there is a first byte to pass on, or another try makes no sense."""
        model = str(body["model"])
        text = await asyncio.to_thread(json.dumps, body) if call.large else json.dumps(body)
        payload, stream = text.encode(), bool(body.get("stream"))
        while True:
            await self._cool_down(model, call)
            call.tries += 1
            try:
                return await self._once(payload, stream=stream)
            except CallFailed as failure:
                call.failed_try(failure)
                delay = self._delay(failure, call)
                if failure.call_class is CallClass.RATE_LIMIT:
                    seconds = failure.retry_after if failure.retry_after is not None else delay or 0.0
                    self._cooling.note(model, seconds, failure.message)
                if delay is None:
                    failure.final = True
                    raise
            await call.wait(delay)

    async def _once(self, payload: bytes, *, stream: bool) -> tuple[aiohttp.ClientResponse, Answer]:
        try:
            response = await self._post(payload)
            try:
                return response, await _read(response, stream=stream)
            except BaseException:
                response.close()
                raise
        except aiohttp.SocketTimeoutError as error:
            raise self._idle() from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            text = f"no answer from provider {self._provider.name}: {type(error).__name__}: {error}"
            raise CallFailed(CallClass.INFRA, 502, text, retry=True) from error

    async def _post(self, payload: bytes) -> aiohttp.ClientResponse:
        if self._session is None:
            limits = aiohttp.ClientTimeout(
                total=None, sock_connect=self._tuning.connect_seconds, sock_read=self._tuning.idle_seconds
            )
            self._session = aiohttp.ClientSession(timeout=limits, connector=aiohttp.TCPConnector(limit=0))
        key = self._provider.api_key
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        # No redirects: they would carry the key to another host. BytesIO: large bodies are sent in pieces.
        return await self._session.post(
            self._url, data=io.BytesIO(payload), headers=headers, proxy=self._proxy, allow_redirects=False
        )

    def _idle(self) -> CallFailed:
        text = f"provider {self._provider.name} sent no byte for {self._tuning.idle_seconds:g} s"
        return CallFailed(CallClass.INFRA, 504, text)

    def _delay(self, failure: CallFailed, call: RunningCall) -> float | None:
        """Seconds until the next try, None for no next try."""
        tuning = self._tuning
        if not failure.retry or call.tries >= tuning.tries:
            return None
        if failure.retry_after is not None:
            if failure.retry_after > tuning.give_up_seconds:
                return None
            spread = min(1.0, (failure.retry_after + tuning.backoff_seconds) / 10)
            delay = failure.retry_after + random.uniform(0, spread)
        else:
            delay = random.uniform(0, min(tuning.backoff_cap_seconds, tuning.backoff_seconds * 2 ** (call.tries - 1)))
        return delay if call.waited + delay <= tuning.max_wait_seconds else None

    async def _cool_down(self, model: str, call: RunningCall) -> None:
        """Wait while a rate limit holds for this model. Raises CallFailed when that would take too long."""
        tuning = self._tuning
        while (left := self._cooling.left(model)) > 0:
            if left > tuning.give_up_seconds or call.waited + left > tuning.max_wait_seconds:
                text = f"provider {self._provider.name} is cooling down after a rate limit, {left:.0f} s more"
                raise CallFailed(CallClass.RATE_LIMIT, 429, text, retry_after=left, final=True)
            await call.wait(left + random.uniform(0, min(1.0, left / 10)))


async def _read(response: aiohttp.ClientResponse, *, stream: bool) -> Answer:
    """The answer of one try, for a stream as soon as its first chunk is there."""
    if response.status != 200:
        text = await response.text(errors="replace")
        raise from_answer(response.status, _decode(text), response.headers)
    if stream and response.content_type == "text/event-stream":
        chunks = _chunks(response)
        first = await anext(chunks, None)
        if first is None:
            raise CallFailed(CallClass.BAD_UPSTREAM, 502, "the provider's stream was empty", retry=True)
        return _after(first, chunks)
    value = _decode(await response.text(errors="replace"))
    if is_completion(value):
        return _cut(value) if stream else value
    if isinstance(value, dict) and value.get("error"):
        raise from_event(value)
    shown = value if isinstance(value, str) else json.dumps(value)
    text = f"the provider's answer is no chat completion ({response.content_type}): {shown[:200]}"
    raise CallFailed(CallClass.BAD_UPSTREAM, 502, text, upstream_status=200, retry=True)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[Json, None]:
    """Decode a stream. It is complete at [DONE], with a finish reason or without one.

    A stream without [DONE] is complete once it has a finish reason, whether the connection then ends, breaks or stands
    still. Raises CallFailed for one that ends before that, SocketTimeoutError for one that stands still.
    """
    parser, finished, data = EventParser(), False, b"begin"
    while data:
        data = await _bytes(response, finished=finished)
        for event in parser.feed(data) if data else _last(parser):
            if event.strip() == "[DONE]":
                return
            chunk = _chunk(event)
            finished = finished or _finishes(chunk)
            yield chunk
    if not finished:
        raise CallFailed(CallClass.STREAM_BROKEN, 502, "the provider's stream ended before its finish", retry=True)


async def _bytes(response: aiohttp.ClientResponse, *, finished: bool) -> bytes:
    """The next bytes of a stream, none at its end; once it has finished, every end is a good one."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        if finished:
            return b""
        if isinstance(error, aiohttp.SocketTimeoutError):
            raise
        text = f"the provider's stream broke: {type(error).__name__}: {error}"
        raise CallFailed(CallClass.STREAM_BROKEN, 502, text, retry=True) from error


def _last(parser: EventParser) -> list[str]:
    """The event that lacks its blank line at the end of a stream, unless it was cut off in its middle."""
    return [event for event in parser.close() if event.strip() == "[DONE]" or isinstance(_decode(event), dict)]


def _finishes(chunk: Json) -> bool:
    """Whether a chunk has the first choice's finish reason."""
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(choice, dict) and isinstance(choice.get("finish_reason"), str)


def _chunk(event: str) -> Chunk:
    value = _decode(event)
    if isinstance(value, dict) and value.get("error"):
        raise from_event(value)
    if not isinstance(value, dict):
        text = f"the provider's stream holds an event that is no JSON object: {event[:200]}"
        raise CallFailed(CallClass.BAD_UPSTREAM, 502, text, upstream_status=200, retry=True)
    return Chunk(value, event)


async def _after(first: Json, chunks: AsyncGenerator[Json, None]) -> AsyncGenerator[Json, None]:
    """The whole stream; what goes wrong once it has begun is a broken stream, unless it is the client's own limit."""
    try:
        yield first
        async for chunk in chunks:
            yield chunk
    except aiohttp.SocketTimeoutError as error:
        text = "the provider's stream stood still for too long"
        raise CallFailed(CallClass.INFRA, 504, text) from error
    except CallFailed as failure:
        if failure.call_class not in (CallClass.CONTEXT_LENGTH, CallClass.CONTENT_FILTER):
            failure.call_class = CallClass.STREAM_BROKEN
        raise
    finally:
        await chunks.aclose()


async def _cut(whole: Json) -> AsyncGenerator[Json, None]:
    for chunk in chunks_of(whole):
        yield chunk


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _proxy_for(url: str) -> str | None:
    """The environment's proxy for a URL; none for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)
