"""The tools of a Responses request as chat functions, with the way back from a function's name. Pure functions.

``function`` stays a function, ``custom`` (free-form input) becomes one with the argument ``input``, and the functions
inside a ``namespace`` become functions with flat names. Tools that the provider would run itself (``web_search`` …)
cannot be had from a chat provider: they are left out, with a note.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What chat providers take as a function's name."""
_DIGEST = 8
_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
_MODES = frozenset({"auto", "none", "required"})


@dataclass(frozen=True)
class Tool:
    """How a chat function is called on the responses wire."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Toolbox:
    """``functions`` are the chat tools, ``notes`` says what was left out.

    Raises CallFailed (``bad_request``) for what is no list of tools.
    """

    def __init__(self, tools: Any) -> None:
        self.functions: list[Json] = []
        self.notes: list[str] = []
        self._by_flat: dict[str, Tool] = {}
        self._flat: dict[tuple[str | None, str], str] = {}
        if not isinstance(tools, list | None):
            raise refused("'tools' must be a list")
        for index, tool in enumerate(tools or ()):
            self._add(f"tools[{index}]", tool)

    def find(self, flat: str) -> Tool:
        """The tool behind a chat function's name; a name that was not offered stands for itself."""
        return self._by_flat.get(flat, Tool(flat))

    def flat(self, name: str, namespace: str | None = None) -> str:
        """The chat function's name of a tool, whether this request offers it or a former one did."""
        return self._flat.get((namespace, name)) or flat_name(name, namespace)

    def choice(self, value: Any) -> Any:
        """A Responses ``tool_choice`` as chat's, None for none; ``allowed_tools`` takes the other tools away."""
        if isinstance(value, dict) and value.get("type") == "allowed_tools":
            self._keep(value.get("tools"))
            value = value.get("mode", "auto")
        if value is None or (not self.functions and value in ("auto", "none")):
            return None
        if isinstance(value, str) and value in _MODES and self.functions:
            return value
        if isinstance(value, dict) and value.get("type") in ("function", "custom"):
            flat = self.flat(str(value.get("name")), _text(value.get("namespace")))
            if flat in self._by_flat:
                return {"type": "function", "function": {"name": flat}}
        elif isinstance(value, dict) and isinstance(value.get("type"), str):
            self.notes.append(f"tool_choice {value['type']} left out: no chat provider has this tool")
            return None
        raise refused(f"'tool_choice' asks for a tool that 'tools' does not offer: {value!r}"[:300])

    def _add(self, where: str, tool: Any, namespace: Json | None = None) -> None:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            raise refused(f"'{where}' must be an object with a type")
        if kind not in ("function", "custom", "namespace"):
            self.notes.append(f"tool {kind} left out: a chat provider does not run tools")
            return
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise refused(f"'{where}' must have a name")
        if kind != "namespace":
            self._function(tool, namespace)
        elif namespace is not None or not isinstance(tool.get("tools"), list):
            raise refused(f"'{where}' must be a namespace with a list of tools, and not inside another one")
        else:
            for index, nested in enumerate(tool["tools"]):
                self._add(f"{where}.tools[{index}]", nested, tool)

    def _function(self, tool: Json, namespace: Json | None) -> None:
        space = namespace["name"] if namespace else None
        flat = flat_name(tool["name"], space)
        if flat in self._by_flat:
            flat = _with_digest(flat, f"{space}\0{tool['name']}\0{tool['type']}")
        self._by_flat[flat] = Tool(tool["name"], space, tool["type"] == "custom")
        self._flat.setdefault((space, tool["name"]), flat)
        self.functions.append({"type": "function", "function": {"name": flat} | _described(tool, namespace)})

    def _keep(self, allowed: Any) -> None:
        named = [tool for tool in allowed if isinstance(tool, dict)] if isinstance(allowed, list) else []
        kept = {self.flat(str(tool.get("name")), _text(tool.get("namespace"))) for tool in named}
        self.functions = [function for function in self.functions if function["function"]["name"] in kept]
        self._by_flat = {flat: tool for flat, tool in self._by_flat.items() if flat in kept}


def refused(text: str) -> CallFailed:
    """The error of a request that cannot be translated."""
    return CallFailed(CallClass.BAD_REQUEST, 400, text)


def flat_name(name: str, namespace: str | None = None) -> str:
    """A chat function's name; one that chat does not take is shortened and gets a digest, always the same one."""
    whole = f"{namespace}__{name}" if namespace else name
    return whole if _NAME.fullmatch(whole) else _with_digest(whole, f"{namespace}\0{name}")


def _with_digest(name: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[: 63 - _DIGEST]}_{digest}"


def _described(tool: Json, namespace: Json | None) -> Json:
    """Description and parameters of a chat function."""
    words = [*_texts(namespace), *_texts(tool)]
    if tool["type"] == "custom":
        words += _grammar(tool.get("format"))
        argument = {"type": "string", "description": "The whole input of the tool, as free text."}
        parameters: Json = {"type": "object", "properties": {"input": argument}, "required": ["input"]}
        parameters["additionalProperties"] = False
    else:
        given = tool.get("parameters")
        parameters = given if isinstance(given, dict) else _NO_PARAMETERS
    strict = {"strict": True} if tool.get("strict") is True else {}
    return ({"description": "\n\n".join(words)} if words else {}) | {"parameters": parameters} | strict


def _texts(tool: Json | None) -> Iterator[str]:
    if tool and isinstance(tool.get("description"), str) and tool["description"]:
        yield tool["description"]


def _grammar(form: Any) -> Iterator[str]:
    if isinstance(form, dict) and form.get("type") == "grammar" and isinstance(form.get("definition"), str):
        yield f"The input must follow this {form.get('syntax', 'lark')} grammar:\n{form['definition']}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
