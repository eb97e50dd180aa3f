"""Untrusted file names made safe: valid UTF-8, no control characters, one component at a time."""

from __future__ import annotations

import hashlib

COMPONENT_BYTES = 255
PATH_BYTES = 1000
DEPTH = 64
SHOWN_CHARACTERS = 300


def safe_component(name: str) -> str:
    """Return a file name as it stands where it is printable UTF-8 that fits, else an escaped form of it.

    Bytes that are no UTF-8 (lone surrogates among them) and control characters become ``%XX``, and so does ``%``
    in a name that needs escaping; a name that gets longer than a file system takes ends in ``~`` and a digest.
    """
    safe = name if is_plain(name) else "".join(escaped(character) for character in name)
    data = safe.encode()
    if len(data) <= COMPONENT_BYTES:
        return safe
    return data[:COMPONENT_BYTES - 11].decode(errors="ignore") + "~" + hashlib.sha256(to_bytes(name)).hexdigest()[:10]


def is_plain(name: str) -> bool:
    """Tell whether a name needs no escaping."""
    return not any(is_control(character) or "\ud800" <= character <= "\udfff" for character in name)


def is_control(character: str) -> bool:
    """Tell whether a character could move a cursor, end a line or turn the writing direction."""
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0x2028 <= code <= 0x202E or 0x2066 <= code <= 0x2069


def escaped(character: str) -> str:
    """Return a character, percent-encoded where it is not plain."""
    if character != "%" and is_plain(character):
        return character
    return "".join(f"%{byte:02X}" for byte in to_bytes(character))


def to_bytes(name: str) -> bytes:
    """Return the bytes that a name was decoded from, whatever surrogates it holds."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")


def safe_parts(name: str) -> tuple[str, ...] | str:
    """Return the safe components of a relative path, or in one string why it is refused."""
    if "\0" in name:
        return "unsafe name: it holds a NUL"
    if name.startswith("/"):
        return "unsafe name: it is absolute"
    parts = name.rstrip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "unsafe name: an empty, '.' or '..' component"
    safe = tuple(safe_component(part) for part in parts)
    if len(safe) > DEPTH or sum(len(part.encode()) + 1 for part in safe) > PATH_BYTES:
        return f"unsafe name: deeper than {DEPTH} folders or longer than {PATH_BYTES} bytes"
    return safe


def shown(name: str) -> str:
    """Return any name as short printable text for a listing."""
    text = name if is_plain(name) else "".join(escaped(character) for character in name)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
