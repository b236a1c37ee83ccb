"""Errors as HTTP answers: `{error, hint, code}` and what belongs to one kind only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pipo.errors import CODES, BadRequest, InvalidPipeline, PipoError, Rejected
from pipo.rpc import to_proto
from pipo.rpc.to_json import to_value
from pipo_gateway.ingress.answer import JSON_TYPE, LINE_END, Answer

_MIB = 1024 * 1024

Headers = Iterable[tuple[str, str]]


def refusal(
    error: PipoError, *, status: int | None = None, headers: Headers = (), **more: Any
) -> Answer:
    """The answer for an error; `status`, or the error's own, wins over the one of its code."""
    body: dict[str, Any] = {"error": error.message, "hint": error.hint, "code": error.code}
    if isinstance(error, InvalidPipeline):
        body["diagnostics"] = [to_value(to_proto.diagnostic(f)) for f in error.findings]
    if isinstance(error, Rejected) and error.packet_id:
        body["packet_id"] = error.packet_id
    lines = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers)
    return Answer(
        status or _status_of(error),
        msgspec.json.encode(body | more) + LINE_END,
        JSON_TYPE + lines,
    )


def _status_of(error: PipoError) -> int:
    own: int | None = getattr(error, "http_status", None)
    return CODES[error.code].http if own is None else own


def too_large(bytes_limit: int) -> Answer:
    """413 for a body over `engine.packet_limit`; names the limit and its key (decision 40)."""
    shown = f"{bytes_limit // _MIB} MiB" if bytes_limit % _MIB == 0 else f"{bytes_limit} bytes"
    error = BadRequest(
        f"the body is larger than {shown}",
        hint="engine.packet_limit in config.yaml is the limit; it can be up to 128MiB",
    )
    return refusal(error, status=413)
