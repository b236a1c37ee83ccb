"""What one unit is in a file of JSON lines. Pure."""

from __future__ import annotations

import json
from typing import Any

from pipo.connectors.contract import Refused
from pipo.payload import BadPayload, encode


def line(key: str, data: Any) -> bytes:
    """`{"packet_id": …, "data": …}` and a line break; half a surrogate pair stays an escape.

    Raises: Refused, for data that JSON cannot hold.
    Source: decision 46.
    """
    return b'{"packet_id":%b,"data":%b}\n' % (json_bytes(key), json_bytes(data))


def json_bytes(value: Any) -> bytes:
    """Compact JSON, non-ASCII as it is."""
    try:
        return encode(value)
    except BadPayload:
        pass
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"data is not JSON: {error}") from None
    return text.encode("utf-8", "backslashreplace")
