"""How supervisor and user simulator reach their models: a grant per question, in the name of role, attempt and turn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.chat_client import Chat, open_chat
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.models.grants import GrantRequest, Role
from pytest_uniclaw.store import exchange_folder


@dataclass(frozen=True)
class RoleModels:
    """The way of one attempt's roles to the gateway. ``directory`` is the attempt's folder, ``secrets`` are redacted.

    ``lane`` names the attempt's part of a role script: the task id.
    """

    gateway: GatewayAddress
    attempt: str
    directory: Path
    lane: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def open(
        self, role: Role, choice: ModelChoice, *, turn: int, effort: str = "", tag: str = ""
    ) -> AbstractContextManager[Chat]:
        """Open a chat with the role's model for one turn; ``tag`` tells the judges of a panel apart.

        Raises SettingsError (provider or script missing), TaskError (a fault in the script) and InfraError.
        """
        request = GrantRequest(
            attempt=self.attempt, role=role, model=choice.name, provider=choice.provider, upstream_model=choice.name,
            script=choice.script, lane=self.lane, turn=turn, log=exchange_folder(self.directory, role, tag),
            secrets=self.secrets,
        )  # fmt: skip
        return open_chat(self.gateway, request, effort=effort)
