"""What a text may say in other writing: reversed, ROT13, hexadecimal, base64 and base32, percent and entity codes.

Fingerprints are sought in each reading, so that an encoded secret is found without storing its encodings.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

DECODED_CHARACTERS = 20_000
"""How much decoded text is read of one message."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{7,}")
_MIXED = re.compile(r".[A-Z0-9+/]")
"""What base64 has and an ordinary word has not."""
_BASE32 = re.compile(r"(?<![A-Za-z0-9])[A-Z2-7]{8,}")
_HEX = re.compile(r"(?:(?:0x|\\x|%|&#x)?[0-9a-fA-F]{2}[\s:;,.\-_]{0,2}){4,}")
_DECIMAL = re.compile(r"(?:\d{2,3}[\s,;]{1,2}){3,}\d{2,3}")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_WORD = re.compile(r"[^\W_]+")
_LEET = [str.maketrans("013457@$", f"o{one}eastas") for one in "il"]


def mirrored(text: str) -> Iterator[str]:
    """Yield the readings that any text has: backwards, each word backwards, ROT13, digits as letters."""
    yield text[::-1]
    yield _WORD.sub(lambda word: word[0][::-1], text)
    yield codecs.encode(text, "rot13")
    if re.search(r"[a-zA-Z][013457@$]|[013457@$][a-zA-Z]", text):
        yield from (text.translate(table) for table in _LEET)


def decoded(text: str) -> str:
    """Return what the encoded pieces of a text hold, one on a line; empty when there are none.

    Takes the text with its case, without invisible characters. What is decoded is decoded once more.
    """
    first = "\n".join(_pieces(text))[:DECODED_CHARACTERS]
    return "\n".join(filter(None, (first, "\n".join(_pieces(first))[:DECODED_CHARACTERS])))


def _pieces(text: str) -> Iterator[str]:
    for plain in (unquote(text), html.unescape(text), _ESCAPED.sub(_character, text)):
        if plain != text:
            yield plain
    for found in _HEX.findall(text):
        digits = "".join(re.findall(r"[0-9a-fA-F]{2}", re.sub(r"0x|\\x|&#x|%", " ", found)))
        yield from _text(bytes.fromhex(digits))
    for found in _DECIMAL.findall(text):
        yield "".join(chr(int(code)) for code in re.findall(r"\d+", found))
    for found in filter(_MIXED.search, _BASE64.findall(text)):
        yield from _base64(found.translate(str.maketrans("-_", "+/")))
    for found in _BASE32.findall(text):
        with_padding = found + "=" * (-len(found) % 8)
        try:
            yield from _text(base64.b32decode(with_padding))
        except binascii.Error:
            continue


def _base64(found: str) -> Iterator[str]:
    """A piece may begin and end anywhere in a longer text: all four alignments are read."""
    for shift in range(4):
        digits = found[shift:]
        whole = digits[: len(digits) - len(digits) % 4] if len(digits) % 4 == 1 else digits + "=" * (-len(digits) % 4)
        try:
            yield from _text(base64.b64decode(whole, validate=True))
        except (binascii.Error, ValueError):
            continue


def _text(data: bytes) -> Iterator[str]:
    """Yield decoded bytes that read as text; a broken character at either end is forgiven."""
    text = data.decode("utf-8", "replace").strip("\ufffd")
    if len(re.findall(r"\w", text)) >= 4 and not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]", text):
        yield text


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))
