"""Who may come in, and what for (design §8).

Two doors stay open: `/in` (each input has its own auth, in the pipeline) and
`/healthz`. Everything else is control, over HTTP and gRPC alike, `/metrics` included:
its numbers name every pipeline of the home. A scraper shows a token of scope `read`
(Prometheus: `authorization: {credentials_file: …}`).

On loopback without configured tokens, control needs no token and answers only
requests whose Host and Origin are loopback names, so that a web page in the owner's
browser cannot reach it under a name of its own. Bound elsewhere, or once tokens are
configured, every control call shows one: the admin token of the home, which may do
everything, or a configured one with its scope and, perhaps, its pipelines.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pipo.errors import Forbidden

SCOPES = ("read", "operate", "edit")
_BEARER = "bearer "
# RFC 9110 section 7.2: a name or an address, and perhaps a port.
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?")


class NoToken(Forbidden):
    """Nobody known is asking."""

    http_status = 401


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a token's name, what it may do, and for which pipelines (None: all)."""

    name: str
    scope: str
    pipelines: frozenset[str] | None = None

    def require(self, scope: str, pipeline: str | None = None) -> None:
        """Raises: Forbidden, unless the scope suffices and `pipeline` is one of its own.

        `pipeline` None is an operation that belongs to no single one.
        """
        if SCOPES.index(self.scope) < SCOPES.index(scope):
            raise Forbidden(
                f"token {self.name!r} has scope {self.scope}, and this needs {scope}",
                hint="use a token with a larger scope; engine.tokens in config.yaml lists them",
            )
        if pipeline is not None and not self.sees(pipeline):
            raise Forbidden(
                f"token {self.name!r} is not for pipeline {pipeline!r}",
                hint="engine.tokens in config.yaml says which pipelines a token is for",
            )

    def require_all(self) -> None:
        """Raises: Forbidden, for a token that is limited to named pipelines."""
        if self.pipelines is not None:
            raise Forbidden(
                f"token {self.name!r} is for named pipelines only",
                hint="name a pipeline that it is for, or use a token without `pipelines`",
            )

    def sees(self, pipeline: str) -> bool:
        """Whether the pipeline is one of its own."""
        return self.pipelines is None or pipeline in self.pipelines


OWNER = Principal("owner", "edit")
"""Whoever reaches a loopback door without tokens."""


class Doors:
    """Decides by headers alone; knows no route."""

    def __init__(self, bind: str, tokens: Iterable[tuple[Principal, str]], admin: str) -> None:
        configured = list(tokens)
        self.guarded = bool(configured) or not is_loopback(bind)
        """Whether control needs a token."""
        self._known = {_digest(token): principal for principal, token in configured}
        self._known[_digest(admin)] = Principal("admin", "edit")

    def admit(self, headers: Mapping[str, str]) -> Principal:
        """Who sends this HTTP request; header names are looked up without regard to case.

        Raises: NoToken; Forbidden, for a foreign Host or Origin.
        """
        if self.guarded:
            return self.recognise(headers.get("Authorization", ""))
        host = headers.get("Host", "")
        if not is_loopback(_name_of(host)):
            raise Forbidden(
                f"the Host {host[:100]!r} is not this machine",
                hint="use 127.0.0.1 or localhost; elsewhere the gateway needs engine.bind and tokens",
            )
        origin = headers.get("Origin")
        if origin is not None and not is_loopback(_origin_of(origin)):
            raise Forbidden(
                f"the Origin {origin[:100]!r} is not this machine",
                hint="other sites' pages may not use the API; use a token with engine.bind",
            )
        return OWNER

    def admit_call(self, metadata: Iterable[tuple[str, str | bytes]]) -> Principal:
        """Who makes this gRPC call. Raises: NoToken."""
        if not self.guarded:
            return OWNER
        shown = next((value for key, value in metadata if key == "authorization"), "")
        return self.recognise(shown if isinstance(shown, str) else "")

    def recognise(self, authorization: str) -> Principal:
        """The principal behind an `Authorization` value. Raises: NoToken."""
        hint = "send `Authorization: Bearer <token>`; the admin token is in admin.token of the home"
        if not authorization:
            raise NoToken("this needs a token", hint=hint)
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise NoToken("the Authorization header is not a bearer token", hint=hint)
        # A digest is looked up, so the time taken says nothing about the token.
        principal = self._known.get(_digest(authorization[len(_BEARER) :].strip()))
        if principal is None:
            raise NoToken("the token is not known here", hint=hint)
        return principal


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine only."""
    lower = name.lower().rstrip(".")
    if lower == "localhost" or lower.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(lower.strip("[]")).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; empty for one that is malformed."""
    found = _HOST.fullmatch(host)
    return found["name"] if found else ""


def _origin_of(origin: str) -> str:
    """The host name in an Origin header; empty for one that names none."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
