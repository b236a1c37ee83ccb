"""From what arrives to what a packet carries: json, text, csv, form, bytes.

`parse_body` reads a request's body; `parse_pushed` does the same for a value that
is handed over as text (edge 99). A body of csv is several packets, every other
body is one. A body is read as a whole or refused as a whole.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pipo import payload
from pipo.connectors import csv_format, form_format
from pipo.errors import BadRequest

BINARY = "application/octet-stream"

Parse = Callable[[bytes, str], Any]


def parse_body(format: str, body: bytes, content_type: str = "") -> Iterable[Any]:
    """The packets of a body, in order; at least one.

    Raises: BadRequest, with the reason and the way out, before the first is given.
    """
    if format in ("json", "csv"):
        _refuse_multipart(format, body, content_type)
    if format == "csv":
        return csv_format.records(text_of(body))
    return (_PARSE_ONE[format](body, content_type),)


def parse_pushed(format: str, value: Any) -> Any:
    """The data of a pushed or handed value. Raises: BadRequest, as for a body."""
    if not isinstance(value, str) or format in ("json", "text"):
        return value
    body = value.encode("utf-8", "surrogatepass")
    packets = iter(parse_body(format, body))
    first = next(packets)
    if next(packets, None) is not None:
        raise BadRequest(
            "the csv text holds more than one record",
            hint="push each record as its own packet",
        )
    return first


def _refuse_multipart(format: str, body: bytes, content_type: str) -> None:
    """An upload by a form (`curl -F`) is around what was meant; as csv it might even pass."""
    if content_type.lower().startswith(form_format.MULTIPART) and body.lstrip().startswith(b"--"):
        raise BadRequest(
            f"the body is a multipart form, and this input takes {format}",
            hint="send the file alone: curl --data-binary @FILE; or set `format: form`",
        )


def text_of(body: bytes) -> str:
    """Raises: BadRequest, naming the byte that is no UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"the body is not UTF-8 text (byte {error.start})",
            hint="send UTF-8, or set `format: bytes`",
        ) from None


def _json(body: bytes, content_type: str) -> Any:
    try:
        return payload.decode(body)
    except payload.BadPayload as error:
        raise BadRequest(
            f"the body is not JSON: {error}", hint="send one JSON value, or set another `format`"
        ) from None


def _text(body: bytes, content_type: str) -> str:
    return text_of(body)


def _form(body: bytes, content_type: str) -> Mapping[str, Any]:
    return form_format.fields(body, content_type)


def _bytes(body: bytes, content_type: str) -> Mapping[str, Any]:
    return {
        "base64": base64.b64encode(body).decode("ascii"),
        "content_type": content_type or BINARY,
        "size": len(body),
    }


_PARSE_ONE: Mapping[str, Parse] = {"json": _json, "text": _text, "form": _form, "bytes": _bytes}
