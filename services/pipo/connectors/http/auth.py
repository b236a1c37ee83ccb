"""What a request must show before its packet is taken. Constant time throughout."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipo.connectors.contract import HttpRequest
from pipo.errors import BadRequest

_HINT = "look at the variables and secrets that its template uses"


@dataclass(frozen=True, slots=True)
class HeaderToken:
    """A header that must be exactly this."""

    header: str
    equals: bytes

    def allows(self, request: HttpRequest) -> bool:
        shown = request.header(self.header.lower())
        return shown is not None and hmac.compare_digest(_raw(shown), self.equals)


@dataclass(frozen=True, slots=True)
class Signature:
    """A header that must be the hex HMAC of the raw body (edge 26)."""

    header: str
    secret: bytes
    algorithm: str

    def allows(self, request: HttpRequest) -> bool:
        shown = (request.header(self.header.lower()) or "").strip().lower()
        shown = shown.removeprefix(f"{self.algorithm}=")
        wanted = hmac.new(self.secret, request.body, self.algorithm).hexdigest()
        return hmac.compare_digest(_raw(shown), wanted.encode("ascii"))


@dataclass(frozen=True, slots=True)
class Auth:
    """Both kinds may be combined; None asks for nothing."""

    token: HeaderToken | None = None
    signature: Signature | None = None


def read(settings: Mapping[str, Any], place: str) -> Auth:
    """The auth of rendered settings; `place` names the input in messages.

    Raises: BadRequest, when a value is missing or empty: such an input would be open to all.
    """
    auth = settings.get("auth")
    if auth is None:
        return Auth()
    token = signature = None
    if "header" in auth or "equals" in auth:
        token = HeaderToken(
            _text(auth, "header", f"{place}.auth"), _text(auth, "equals", f"{place}.auth").encode()
        )
    if "hmac" in auth:
        signed = auth["hmac"]
        signature = Signature(
            _text(signed, "header", f"{place}.auth.hmac"),
            _text(signed, "secret", f"{place}.auth.hmac").encode(),
            signed.get("algorithm", "sha256"),
        )
    if token is None and signature is None:
        raise BadRequest(f"{place}.auth renders to nothing", hint=_HINT)
    return Auth(token, signature)


def _text(settings: Mapping[str, Any], name: str, place: str) -> str:
    value = settings.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{place}.{name} renders to nothing", hint=_HINT)
    return value


def _raw(header: str) -> bytes:
    """The bytes that were received (RFC 9110 section 5.5)."""
    return header.encode("latin-1", "replace")
