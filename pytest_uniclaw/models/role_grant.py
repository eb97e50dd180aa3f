"""A role's grant for a program that talks to the gateway by itself from a sandbox, as the Codex CLI does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pytest_uniclaw.errors import InfraError, ModelRefused
from pytest_uniclaw.models.client import Gateway, GatewayAddress
from pytest_uniclaw.models.grants import Activity, CallClass, Grant, GrantRequest, infra_error, provider_failure


@dataclass(frozen=True)
class RoleGrant:
    """A grant in force. ``address`` says where the program finds the gateway, ``grant`` its key and model."""

    address: GatewayAddress
    grant: Grant
    request: GrantRequest

    def activity(self) -> Activity:
        """Return the signs of life of the role's calls in this attempt. Raises InfraError."""
        return Gateway(self.address).activity(self.request.attempt, self.request.role)

    def failure(self, *, stop: bool) -> InfraError | ModelRefused | None:
        """Return what failed the grant's last call, None where that was answered or none was made.

        ``stop`` ends the grant first: a call in flight is written down only then. Raises InfraError when the gateway
        does not answer.
        """
        gateway, role = Gateway(self.address), self.request.role
        if stop:
            gateway.revoke(self.grant)
        calls = [call for call in gateway.calls(self.request.attempt, role) if call.grant == self.grant.id]
        failure = provider_failure(calls)
        if failure is not None:
            return infra_error(role, failure)
        last = calls[-1] if calls else None
        if last is None or last.call_class in (CallClass.OK, CallClass.CANCELLED):
            return None
        said = last.errors[-1].message if last.errors else ""
        words = ": ".join(filter(None, (last.call_class.value, said)))
        return ModelRefused(
            f"the model provider refused the {role.replace('_', ' ')}: {words}", call_class=last.call_class.value
        )


@contextmanager
def open_grant(address: GatewayAddress, request: GrantRequest) -> Iterator[RoleGrant]:
    """Get a grant, yield it, revoke it. Raises what :meth:`Gateway.grant` raises."""
    gateway = Gateway(address)
    grant = gateway.grant(request)
    try:
        yield RoleGrant(address, grant, request)
    finally:
        with suppress(InfraError):
            gateway.revoke(grant)
