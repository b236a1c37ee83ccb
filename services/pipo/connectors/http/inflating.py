"""Compressed bodies, undone up to a limit, however much they would grow. Pure."""

from __future__ import annotations

import zlib

# Window bits: both of zlib's wrappers, and deflate without one, as some servers send it.
_ANY_WRAPPER, _BARE = 47, -15
_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class NotInflated(ValueError):
    """A body that cannot be undone; the text says why."""


def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """The body, at most `limit` + 1 bytes of it; `coding` is its Content-Encoding.

    Raises: NotInflated.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _CODINGS:
        raise NotInflated(f"the answer is encoded as {coding[:20]!r}, which was not asked for")
    try:
        return zlib.decompressobj(_ANY_WRAPPER).decompress(body, limit + 1)
    except zlib.error:
        if name != "deflate":
            raise NotInflated("the answer is no gzip, though it says so") from None
    try:
        return zlib.decompressobj(_BARE).decompress(body, limit + 1)
    except zlib.error:
        raise NotInflated("the answer is not deflated, though it says so") from None
