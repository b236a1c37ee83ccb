"""The body of an answer as text or as JSON, by what its Content-Type says. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CHARSET = re.compile(r"charset=\"?([\w.:-]+)", re.I)


def text_of(body: bytes, headers: Mapping[str, str]) -> str:
    """The body in its charset, UTF-8 unless it names one; what is none there is replaced."""
    named = _CHARSET.search(headers.get("Content-Type", ""))
    try:
        return body.decode(named[1] if named else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def says_json(headers: Mapping[str, str]) -> bool:
    """Whether the media type is JSON (RFC 8259 section 11, RFC 6839 section 3.1)."""
    media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")
