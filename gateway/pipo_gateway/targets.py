"""The target of a request line, as names, paths and queries that are valid text."""

from __future__ import annotations

from urllib.parse import unquote

PREFIX = "/in/"


def origin_form(target: str) -> str:
    """`/path?query` of `http://host/path?query`, which every server must take (RFC 9112 §3.2.2)."""
    scheme, _, rest = target.partition("://")
    if scheme.lower() not in ("http", "https"):
        return target
    return "/" + rest.partition("/")[2]


def ingress_target(target: str) -> tuple[str, str, str]:
    """Pipeline, path and query of `/in/<pipeline><path>?<query>`; the first two decoded once."""
    where, _, query = target.partition("?")
    name, _, rest = where[len(PREFIX) :].partition("/")
    if "%" in where:
        name, rest = unquote(name), unquote(rest)
    if not target.isascii():
        name, rest, query = valid(name), valid(rest), valid(query)
    return name, f"/{rest}", query


def valid(text: str) -> str:
    """The text, where aiohttp's stand-ins for bytes that are not UTF-8 become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
