"""The settings of a request that Pipo sends, the same in tap, transform and output."""

from __future__ import annotations

from pipo.connectors.contract import Schema
from pipo.connectors.schema import (
    KEEPS_KEYS,
    METHODS,
    anything,
    choice,
    closed,
    map_of,
    statuses,
    text,
)


def request_schema(description: str, idempotency: str) -> Schema:
    """The `with:` of a request; `idempotency` says what its Idempotency-Key is."""
    made = closed(
        required=("url",),
        method=choice("The request's method.", *METHODS, default="POST"),
        url=text("Where the request goes; no redirect is followed."),
        headers=map_of(
            {"type": "string"},
            f"The request's headers. `Idempotency-Key` is {idempotency} unless set.",
            **KEEPS_KEYS,
        ),
        body=anything(
            "What is sent: a text as text/plain, anything else as JSON; `data` unless set. "
            "GET and DELETE send none."
        ),
        success=statuses("The statuses that count as success."),
    )
    return {**made, "description": description}
