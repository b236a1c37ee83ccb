"""Payload JSON: strict in, exact out.

One decoder and one encoder for everything a packet carries. Integers keep every
digit (decision 21); `NaN`, `1e400`, duplicate keys, invalid UTF-8, a half
surrogate pair and nesting beyond 512 are refused with the reason (RFC 8259, and
RFC 7493 where that one leaves a choice).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

DEPTH_LIMIT = 512

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
# A high half without its low half, or a low half on its own (RFC 8259 section 8.2).
_SURROGATE = re.compile(
    rb"\\u(d[89ab][0-9a-f]{2}(?:\\u(d[c-f][0-9a-f]{2}))?|d[c-f][0-9a-f]{2})", re.I
)


class BadPayload(ValueError):
    """Text that is not the JSON a packet may carry; the message says what and where."""


def decode(raw: bytes) -> Any:
    """The value of one JSON text.

    Raises: BadPayload, with the reason, for anything that cannot be kept exactly.
    """
    try:
        value = _decode(raw)
    except RecursionError:
        raise BadPayload(f"nested more than {DEPTH_LIMIT} levels deep") from None
    except msgspec.DecodeError as error:
        raise BadPayload(_reason(raw, str(error))) from None
    _refuse_depth(raw, value)
    # A dropped duplicate takes a colon with it, so equal counts prove that there was
    # none; escapes may hide a colon and are looked at key by key.
    if raw.count(b":") > 1 and (b"\\u" in raw or raw.count(b":") != encode(value).count(b":")):
        _refuse_duplicates(raw)
    return value


def decode_own(raw: bytes) -> Any:
    """The value of JSON that `encode` made: not looked through for what only others write.

    Raises: BadPayload, for what is no JSON.
    """
    try:
        return _decode(raw)
    except (RecursionError, msgspec.DecodeError) as error:
        raise BadPayload(f"not JSON: {error}") from None


def encode(value: Any) -> bytes:
    """Compact JSON text in UTF-8 (decision 46).

    Raises: BadPayload, for a value that JSON cannot hold.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadPayload(f"not JSON: {error}") from None


def encode_data(value: Any) -> bytes:
    """As `encode`, for what becomes a packet's data: `decode` reads it back.

    Raises: BadPayload, also for what is nested too deep for that.
    """
    raw = encode(value)
    _refuse_depth(raw, value)
    return raw


def _refuse_depth(raw: bytes, value: Any) -> None:
    """Brackets are counted first: few values need a walk."""
    if raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT and depth(value) > DEPTH_LIMIT:
        raise BadPayload(f"nested more than {DEPTH_LIMIT} levels deep")


def depth(value: Any) -> int:
    """How many levels of lists and objects a value has; 0 for a scalar."""
    levels = 0
    layer = [value]
    while layer := [item for item in layer if isinstance(item, (dict, list))]:
        levels += 1
        layer = [
            child for item in layer for child in (item.values() if isinstance(item, dict) else item)
        ]
    return levels


def _reason(raw: bytes, driver: str) -> str:
    if not raw.strip():
        return "the text is empty"
    if raw.startswith(b"\xef\xbb\xbf"):
        return "the text starts with a byte order mark; send plain UTF-8"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    if any(
        (m[1][1:2].lower() in b"89ab" and m[2] is None) or m[1][1:2].lower() in b"cdef"
        for m in _SURROGATE.finditer(raw)
    ):
        return "a \\u escape holds half of a surrogate pair"
    return driver.removeprefix("JSON is malformed: ")


def _refuse_duplicates(raw: bytes) -> None:
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise BadPayload(f"the key {key!r} stands twice in one object")
                seen.add(key)
        return made

    json.loads(raw, object_pairs_hook=once)
