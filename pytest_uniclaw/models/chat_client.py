"""The harness's own roles as clients of the gateway: one grant, one conversation partner.

Supervisor and user simulator ask their models through the same gateway as the executor, with virtual keys of their
own, so that one ledger holds every call. The client is OpenAI's, over the gateway's Unix socket and without retries:
the gateway retries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_uniclaw.errors import InfraError, ModelRefused
from pytest_uniclaw.models.chat import Json, is_completion, token_counts
from pytest_uniclaw.models.client import Gateway, GatewayAddress
from pytest_uniclaw.models.grants import (
    INFRA_CLASSES,
    CallClass,
    Failure,
    Grant,
    GrantRequest,
    Role,
    infra_error,
    provider_failure,
)

if TYPE_CHECKING:
    import openai

_CLASS_HEADER = "x-uniclaw-class"


@dataclass(frozen=True)
class Reply:
    """One answer: an assistant message in the shape of chat.completions; token counts are None where unknown."""

    message: Json
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Chat:
    """A role's model. ``effort`` is sent as ``reasoning_effort`` unless it is empty."""

    def __init__(
        self, client: openai.OpenAI, gateway: Gateway, grant: Grant, request: GrantRequest, effort: str = ""
    ) -> None:
        self._client, self._gateway, self._grant = client, gateway, grant
        self._request, self._effort = request, effort

    @property
    def model(self) -> str:
        """The model's name."""
        return self._grant.model

    def complete(self, messages: Sequence[Json], *, tools: Sequence[Json] = (), seconds: float) -> Reply:
        """Return the model's next message; ``seconds`` bounds the whole call, and the conversation ends with it.

        Raises InfraError for what the provider could not do and ModelRefused for what it would not do with this
        request.
        """
        import openai

        body: Json = {"model": self._grant.model, "messages": list(messages)}
        body |= {"tools": list(tools)} if tools else {}
        body |= {"reasoning_effort": self._effort} if self._effort else {}
        try:
            answer = self._client.post("/chat/completions", body=body, cast_to=object, options={"timeout": seconds})
        except openai.APIStatusError as error:
            raise _refusal(self._request.role, error.response.headers.get(_CLASS_HEADER, ""), _words(error)) from None
        except openai.APITimeoutError:
            raise self._late(seconds) from None
        except openai.OpenAIError as error:
            raise self._failed(f"the model {self.model} gave no answer: {type(error).__name__}: {error}") from None
        if not isinstance(answer, dict) or not is_completion(answer):
            raise self._failed(f"the answer of the model {self.model} is no chat completion")
        choice, counts = answer["choices"][0], token_counts(answer.get("usage"))
        return Reply(choice["message"], choice.get("finish_reason"), counts["input_tokens"], counts["output_tokens"])

    def _late(self, seconds: float) -> InfraError:
        """Return why no answer came in time: what the provider refused the call for until then, else its silence."""
        self._gateway.revoke(self._grant)  # ends the call, so that it is written down
        calls = self._gateway.calls(self._request.attempt, self._request.role)
        failure = provider_failure([call for call in calls if call.grant == self._grant.id][-1:])
        if failure is None:
            return self._failed(f"the model {self.model} gave no answer in {seconds:g} s")
        return infra_error(self._request.role, failure)

    def _failed(self, message: str) -> InfraError:
        return infra_error(self._request.role, Failure(call_class=CallClass.INFRA, message=message))


@contextmanager
def open_chat(address: GatewayAddress, request: GrantRequest, *, effort: str = "") -> Iterator[Chat]:
    """Get a grant, yield its chat, revoke it. Raises what :meth:`Gateway.grant` raises."""
    gateway = Gateway(address)
    grant = gateway.grant(request)
    try:
        with _client(address, grant) as client:
            yield Chat(client, gateway, grant, request, effort)
    finally:
        with suppress(InfraError):
            gateway.revoke(grant)


def _client(address: GatewayAddress, grant: Grant) -> openai.OpenAI:
    import httpx2
    import openai

    # Plain HTTP over the socket: loading certificates would cost more than the call.
    transport = httpx2.HTTPTransport(uds=str(address.agent_socket), verify=False)
    http_client = openai.DefaultHttpxClient(transport=transport, trust_env=False)
    return openai.OpenAI(api_key=grant.key, base_url="http://gateway/v1", max_retries=0, http_client=http_client)


def _refusal(role: Role, call_class: str, message: str) -> Exception:
    known: Any = call_class if call_class in set(CallClass) else CallClass.INFRA
    found = CallClass(known)
    if found in INFRA_CLASSES or found is CallClass.CANCELLED:
        return infra_error(role, Failure(call_class=found, message=message))
    who = role.replace("_", " ")
    return ModelRefused(f"the model provider refused the {who}: {found.value}: {message}", call_class=found.value)


def _words(error: openai.APIStatusError) -> str:
    """Return what the provider said, without the client's rendering of it as a Python value."""
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    return said if isinstance(said, str) and said else error.message
