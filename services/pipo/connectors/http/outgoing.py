"""The request that rendered settings ask for, the same in tap, transform, output and check. Pure.

What a request can never be (no address, a header with a line break) is refused here,
before anything is sent; no retry can help.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yarl import URL

from pipo.connectors.contract import Refused
from pipo.connectors.file.records import text
from pipo.lang.printing import mixed_text

if TYPE_CHECKING:
    from aiohttp import FormData

IDEMPOTENCY_KEY = "Idempotency-Key"
WITHOUT_BODY = frozenset({"GET", "DELETE"})

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
# RFC 9110 section 5.6.2.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_BREAKS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# They frame the message: a wrong one would make the receiver misread it.
_OURS = frozenset({"content-length", "transfer-encoding", "connection"})
_ESCAPED = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*", re.ASCII)
_USER = re.compile(r"(?<=//)[^/?#]*@")
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `shown` is its method and URL for people: without user and password.

    A form is sent once: whoever sends again makes another.
    """

    method: str
    url: URL
    headers: Mapping[str, str]
    body: bytes | FormData | None
    shown: str


def request(settings: Mapping[str, Any], data: Any, key: str) -> Request:
    """What is sent for `data`, with the idempotency key `key`.

    Raises: Refused, for settings that render to no request.
    """
    made = head(settings, key)
    if made.method in WITHOUT_BODY:
        return made
    body = settings.get("body", data)
    headers = dict(made.headers)
    # Only where the author gave none, in any case (edge 195).
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = _TEXT if isinstance(body, str) else _JSON
    return Request(made.method, made.url, headers, text(body), made.shown)


def head(settings: Mapping[str, Any], key: str | None) -> Request:
    """The request without its body; `key` None is for one that changes nothing.

    Raises: Refused.
    """
    method = str(settings.get("method", "POST"))
    url, user = _address(settings.get("url"))
    headers = _headers(settings)
    if key is not None:
        _replace_key(headers, key)
    if user is not None and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = user
    return Request(method, url, headers, None, f"{method} {shown(str(settings.get('url')))}")


def own_key(settings: Mapping[str, Any]) -> str | None:
    """The author's `Idempotency-Key`, in any case; None when there is none or it is empty."""
    headers = _headers(settings)
    name = _own_key(headers)
    return headers[name] or None if name is not None else None


def shown(url: str) -> str:
    """A URL as people see it: whole, since half a secret could not be masked, or not at all."""
    plain = _USER.sub("", url, count=1)
    if len(plain) <= _SHOWN_CHARACTERS:
        return plain
    return f"{origin(plain)}/… ({len(plain)} characters)"


def origin(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(re.split(r"[/?#]", url, maxsplit=3)[:3]) if "//" in url else ""


def _own_key(headers: Mapping[str, str]) -> str | None:
    return next((name for name in headers if name.lower() == IDEMPOTENCY_KEY.lower()), None)


def _replace_key(headers: dict[str, str], key: str) -> None:
    """Sends the unit's key, once: it is the author's own where there is one (edge 194)."""
    own = _own_key(headers)
    if own is not None and not headers.pop(own):
        raise Refused(
            f"the header {own} renders to nothing", hint="look at its template, or leave it out"
        )
    headers[IDEMPOTENCY_KEY] = key


def _address(given: Any) -> tuple[URL, str | None]:
    """Where it goes, and what user and password in it become (RFC 7617)."""
    if not isinstance(given, str) or not given.strip():
        raise Refused(f"`url` renders to {_kind(given)}", hint="look at its template")
    # A `+` would be a space in a form only.
    url = given.strip().replace(" ", "%20")
    if _CONTROLS.search(url):
        raise Refused(f"the URL {shown(url)!r} holds a line break or another control character")
    try:
        # One that is escaped already goes out as it is: a signature may cover it.
        made = URL(url, encoded=_ESCAPED.fullmatch(url) is not None)
        # What may fail is computed here and kept.
        whole = made.scheme in ("http", "https") and bool(made.host) and made.port is not None
    except ValueError as error:
        raise Refused(f"{shown(url)!r} is no URL: {_USER.sub('', str(error))}") from None
    if not whole:
        raise Refused(
            f"{shown(url)!r} is no address that a request can go to",
            hint="a URL starts with http:// or https:// and names a host",
        )
    if made.user is None and made.password is None:
        return made, None
    pair = f"{made.user or ''}:{made.password or ''}".encode()
    return made.with_user(None), f"Basic {base64.b64encode(pair).decode()}"


def _headers(settings: Mapping[str, Any]) -> dict[str, str]:
    given = settings.get("headers") or {}
    headers: dict[str, str] = {}
    for name, value in given.items():
        if value is None and name.lower() != IDEMPOTENCY_KEY.lower():
            continue
        _judge_name(name, headers)
        headers[name] = _header_value(name, value)
    return headers


def _judge_name(name: str, others: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name of a header")
    if name.lower() in _OURS:
        raise Refused(f"the header {name} is set by Pipo itself", hint="leave it out")
    twin = next((other for other in others if other.lower() == name.lower()), None)
    if twin is not None:
        raise Refused(f"the headers {twin} and {name} are the same", hint="keep one of them")


def _header_value(name: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise Refused(f"the header {name} renders to {_kind(value)}", hint="look at its template")
    made = "" if value is None else mixed_text(value).strip(" \t")
    if _BREAKS.search(made):
        raise Refused(f"the header {name} holds a line break or another control character")
    try:
        made.encode()
    except UnicodeEncodeError:
        raise Refused(f"the header {name} holds text that is no UTF-8") from None
    return made


def _kind(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case None | "":
            return "nothing"
        case str():
            return "white space"
        case _:
            return repr(value)
