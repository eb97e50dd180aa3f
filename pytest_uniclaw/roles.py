"""How supervisor and user simulator reach their models: a grant per question, in the name of role, attempt and turn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.chat_client import Chat, open_chat
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.models.grants import GrantRequest, Role
from pytest_uniclaw.models.role_grant import RoleGrant, open_grant
from pytest_uniclaw.store import exchange_folder
from pytest_uniclaw.tape import Tape


@dataclass(frozen=True)
class RoleModels:
    """The way of one attempt's roles to the gateway. ``directory`` is the attempt's folder, ``secrets`` are redacted.

    ``lane`` names the attempt's part of a role script: the task id. ``tape`` answers in place of every model.
    """

    gateway: GatewayAddress
    attempt: str
    directory: Path
    lane: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tape: Tape | None = None

    def open(
        self, role: Role, choice: ModelChoice, *, turn: int, effort: str = "", tag: str = ""
    ) -> AbstractContextManager[Chat]:
        """Open a chat with the role's model for one turn; ``tag`` tells the judges of a panel apart.

        Raises SettingsError (provider or script missing), TaskError (a fault in the script) and InfraError.
        """
        return open_chat(self.gateway, self._request(role, choice, turn, tag), effort=effort)

    def lend(
        self, role: Role, choice: ModelChoice, *, turn: int, tag: str = "", calls: int | None = None,
        tokens: int | None = None,
    ) -> AbstractContextManager[RoleGrant]:  # fmt: skip
        """Open a grant for a program that talks to the role's model by itself, for at most ``calls`` and ``tokens``.

        Raises what :meth:`open` raises.
        """
        request = self._request(role, choice, turn, tag)
        return open_grant(self.gateway, request.model_copy(update={"max_calls": calls, "max_tokens": tokens}))

    def _request(self, role: Role, choice: ModelChoice, turn: int, tag: str) -> GrantRequest:
        return GrantRequest(
            attempt=self.attempt, role=role, model=choice.name, provider=choice.provider, upstream_model=choice.name,
            script=choice.script, lane=self.lane, turn=turn, log=exchange_folder(self.directory, role, tag),
            secrets=self.secrets, **(self.tape.grant_fields(role, tag) if self.tape else {}),
        )  # fmt: skip
