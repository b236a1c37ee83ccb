"""Bodies and queries, read strictly: the first field that is wrong is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec

from pipo.errors import BadRequest
from pipo.home.ports import PORT_HINT, PORT_MAX
from pipo.payload import BadPayload, decode

Kind = Literal["text", "texts", "flag", "number", "port", "json", "files", "version"]
Fields = Mapping[str, Kind]

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_WORDS = {
    "text": "a text",
    "texts": "a list of texts",
    "flag": "true or false",
    "number": "a whole number",
    "port": "a port",
    "files": "an object of texts by path",
    "version": 'a version, like 3 or "v3"',
}


def body_fields(raw: bytes, known: Fields) -> dict[str, Any]:
    """The known fields of a JSON object; a `json` one stays text, with every digit.

    Raises: BadRequest, for broken JSON, another value than an object, an unknown key,
        and a value of the wrong kind.
    """
    if not raw.strip():
        return {}
    try:
        found = _object(raw)
    except msgspec.ValidationError as error:
        raise BadRequest("the body is not a JSON object", hint=_listing(known)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise BadRequest(f"the body is not JSON: {reason}", hint="send one JSON object") from error
    return {key: _value(key, bytes(text), known) for key, text in found.items()}


def query_fields(query: str, known: Fields) -> dict[str, Any]:
    """The known fields of a query string. Raises: BadRequest, as for bodies."""
    found: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise _unknown(key, known)
        found[key] = _number(key, text) if known[key] == "number" else text
    return found


def required(found: Mapping[str, Any], key: str) -> Any:
    """A field that must be there. Raises: BadRequest."""
    if key not in found:
        raise BadRequest(f"{key} is missing", hint=f"the request needs {key}")
    return found[key]


def _value(key: str, text: bytes, known: Fields) -> Any:
    if key not in known:
        raise _unknown(key, known)
    kind = known[key]
    if kind == "json":
        return text.strip()
    try:
        value = decode(text)
    except BadPayload as error:
        raise BadRequest(f"{key}: {error}", hint=_listing(known)) from error
    fits = {
        "text": isinstance(value, str),
        "texts": isinstance(value, list) and all(isinstance(one, str) for one in value),
        "flag": isinstance(value, bool),
        "number": isinstance(value, int) and not isinstance(value, bool),
        "port": isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= PORT_MAX,
        "files": isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
        "version": isinstance(value, int | str) and not isinstance(value, bool),
    }
    if not fits[kind]:
        hint = PORT_HINT if kind == "port" else _listing(known)
        raise BadRequest(f"{key} is not {_WORDS[kind]}", hint=hint)
    return str(value) if kind == "version" else value


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadRequest(f"{key} is {text[:50]!r}", hint=f"{key} takes a whole number from 0")
    return int(text)


def _unknown(key: str, known: Fields) -> BadRequest:
    return BadRequest(f"unknown field {key[:100]!r}", hint=_listing(known))


def _listing(known: Fields) -> str:
    return f"fields are {', '.join(known)}" if known else "there are no fields"
