"""Content codings of requests: what a compressed body says."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_DECODERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "deflate": zlib.decompressobj,
    "zstd": zstd.ZstdDecompressor,
}


def decoded(data: bytes, coding: str, limit: int) -> bytes:
    """The body behind a ``content-encoding``.

    Raises CallFailed for an unknown coding (415), a body that does not decompress (400) and one that is larger than
    ``limit`` bytes (413), which is not unpacked any further.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return data
    if coding not in _DECODERS:
        text = f"the content-encoding {coding!r} is not known; known: {', '.join(_DECODERS)}"
        raise CallFailed(CallClass.BAD_REQUEST, 415, text)
    found, size = [], 0
    while data:  # a body may be several members one after another
        decoder = _DECODERS[coding]()
        try:
            piece = decoder.decompress(data, limit + 1 - size)
        except (zlib.error, zstd.ZstdError) as error:
            raise CallFailed(CallClass.BAD_REQUEST, 400, f"the body is no {coding}: {error}") from error
        found.append(piece)
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        if not decoder.eof:
            raise CallFailed(CallClass.BAD_REQUEST, 400, f"the body is no {coding}: it ends too early")
        data = decoder.unused_data
    return b"".join(found)


def too_large(limit: int) -> CallFailed:
    """The error of a body over the limit."""
    return CallFailed(CallClass.BAD_REQUEST, 413, f"the request is larger than {limit >> 20} MiB")
