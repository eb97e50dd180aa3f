"""The harness's side of the gateway, on a socket for its own user: grants, revoke, calls, activity, spend."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any, cast, get_args

from aiohttp import web
from pydantic import ValidationError

from pytest_uniclaw.errors import SettingsError, TaskError, UniclawError
from pytest_uniclaw.models.grants import SCRIPT, GrantRequest, Role
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.player import Player
from pytest_uniclaw.models.registry import Registry
from pytest_uniclaw.models.replay import Replay
from pytest_uniclaw.models.script import load_script

_ROLES = get_args(Role)


class AdminApp:
    """The handlers; errors travel as ``{"error": {"kind", …}}`` and are raised again by the client."""

    def __init__(self, registry: Registry, ledger: Ledger, providers: Collection[str], replay: Replay) -> None:
        self._registry = registry
        self._replay = replay
        self._ledger = ledger
        self._providers = providers

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[_errors])
        app.router.add_post("/grants", self._grant)
        app.router.add_delete("/grants/{id}", self._revoke)
        app.router.add_get("/calls", self._calls)
        app.router.add_get("/activity", self._activity)
        app.router.add_get("/spend", self._spend)
        app.router.add_get("/replay", self._reports)
        return app

    async def _grant(self, request: web.Request) -> web.Response:
        asked = self._replay.load(GrantRequest.model_validate_json(await request.read()))
        if asked.provider not in self._providers:
            raise SettingsError(_unknown_provider(asked.provider, self._providers))
        player = Player(load_script(_script_of(asked), asked.lane), asked.turn) if asked.provider == SCRIPT else None
        try:
            grant = self._registry.issue(asked, player)
        except OSError as error:
            raise UniclawError(f"{asked.log}: the exchange log cannot be opened: {error}") from error
        return web.json_response(grant.model_dump())

    async def _revoke(self, request: web.Request) -> web.Response:
        await self._registry.revoke(request.match_info["id"])
        return web.json_response({})

    async def _calls(self, request: web.Request) -> web.Response:
        lines = self._ledger.lines(request.query["attempt"], _role(request))
        return web.Response(body=b"[" + b",".join(lines) + b"]", content_type="application/json")

    async def _activity(self, request: web.Request) -> web.Response:
        return web.json_response(self._registry.activity(request.query["attempt"], _role(request)).model_dump())

    async def _reports(self, request: web.Request) -> web.Response:
        return web.json_response([report.model_dump() for report in self._replay.reports(request.query["attempt"])])

    async def _spend(self, _request: web.Request) -> web.Response:
        return web.json_response(self._registry.spend().model_dump())


def _role(request: web.Request) -> Role | None:
    role = request.query.get("role")
    if role is not None and role not in _ROLES:
        raise SettingsError(f"{role!r} is no role; known: {', '.join(_ROLES)}")
    return cast("Role | None", role)


def _script_of(asked: GrantRequest) -> Any:
    if asked.script is None:
        raise SettingsError(
            f"attempt {asked.attempt}: the provider {SCRIPT!r} needs a script and the task has none\n"
            "  fix: add script/model.yaml to the task's injection folder, or name one with --model=script:FILE"
        )
    return asked.script


def _unknown_provider(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    return f"there is no model provider {name!r}\n  fix: {hint}"


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except TaskError as error:
        where = {"path": str(error.path), "line": error.line, "field": error.field, "remedy": error.remedy}
        problem = {"kind": "task", "message": error.message} | where
    except (SettingsError, ValidationError) as error:
        problem = {"kind": "settings", "message": str(error)}
    except UniclawError as error:
        problem = {"kind": "infra", "message": str(error)}
    return web.json_response({"error": problem}, status=422)
