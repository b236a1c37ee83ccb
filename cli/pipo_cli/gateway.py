"""A gateway's HTTP side, with nothing but the standard library: the supervisor uses it too."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipo.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Internal,
    InvalidPipeline,
    InvalidState,
    NotFound,
    PipoError,
    Rejected,
    Unavailable,
)
from pipo.home import Home, registry
from pipo_cli.render import findings

HEALTH_TIMEOUT_S = 2.0
CALL_TIMEOUT_S = 60.0

_BY_CODE: dict[str, type[PipoError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        NotFound,
        InvalidState,
        InvalidPipeline,
        Rejected,
        Unavailable,
        Conflict,
        Forbidden,
        Internal,
    )
}


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway answers: `http://host:port`, and the token it may want."""

    url: str
    token: str = ""

    def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> Mapping[str, Any] | None:
        """What GET /healthz says, ready or not; None when nothing like a gateway answers."""
        try:
            _, body = self._exchange("GET", "/healthz", None, timeout_s)
        except (OSError, http.client.HTTPException):
            return None
        found = _object(body)
        return found if found.get("service") == "gateway" else None

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """The answer of one REST call.

        Raises: the PipoError that the gateway answers with; Unavailable, if it does not answer.
        """
        try:
            status, raw = self._exchange(method, path, body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the gateway at {self.url} does not answer: {error}",
                hint="it may be starting; try again",
            ) from error
        answer = _object(raw)
        if status >= 400:
            raise error_of(status, answer)
        return answer

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        payload = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            payload = json.dumps(body).encode()
        try:
            connection.request(method, parts.path.rstrip("/") + path, payload, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def at(url: str, token: str = "") -> Gateway:
    """The gateway at an address that a person wrote.

    Raises: BadRequest, if it is no HTTP address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadRequest(f"{url!r} is not an address", hint="write it like http://127.0.0.1:8787")
    return Gateway(parts.geturl().rstrip("/"), token)


def registered(home: Home, token: str = "") -> Iterator[Gateway]:
    """The gateways that are alive in the home, newest first."""
    found = registry.services(home, "gateway")
    for entry in sorted(found, key=lambda e: e.started_at, reverse=True):
        if entry.http_address:
            yield Gateway(f"http://{entry.http_address}", token)


def token_for(home: Home, token_file: str | None) -> str:
    """The token of `--token-file`, else the home's admin token, else none.

    Raises: BadRequest, if the named file cannot be read.
    """
    if token_file is not None:
        try:
            return Path(token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadRequest(
                f"cannot read the token file {token_file}: {reason}",
                hint="name a file that holds the token and nothing else",
            ) from error
    try:
        return home.admin_token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def error_of(status: int, answer: Mapping[str, Any]) -> PipoError:
    """The error that a REST answer stands for."""
    message = str(answer.get("error") or f"the gateway answered {status}")
    hint = str(answer.get("hint") or "")
    kind = _BY_CODE.get(str(answer.get("code")), Internal)
    if kind is InvalidPipeline:
        found = findings.from_json(answer.get("diagnostics") or ())
        return InvalidPipeline(message, findings=found, hint=hint)
    if kind is Rejected:
        return Rejected(message, packet_id=str(answer.get("packet_id") or ""), hint=hint)
    return kind(message, hint=hint)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
