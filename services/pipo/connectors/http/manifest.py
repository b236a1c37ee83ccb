"""http: takes requests in, sends requests out."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole, Role, Schema
from pipo.connectors.http.request import request_schema
from pipo.connectors.schema import (
    KEEPS_ALL_KEYS,
    KEEPS_KEYS,
    METHODS,
    anything,
    choice,
    closed,
    duration,
    integer,
    map_of,
    statuses,
    text,
)

_HMAC = {
    **closed(
        required=("header", "secret"),
        header=text("The header that carries the hex digest of the raw body."),
        secret=text("The key of the HMAC."),
        algorithm=choice("The hash of the HMAC.", "sha256", "sha1", default="sha256"),
    ),
    "description": "Every request must be signed over its raw body.",
}

_AUTH = {
    **closed(
        header=text("The header that must carry `equals`."),
        equals=text("What the header must be, exactly."),
        hmac=_HMAC,
    ),
    "minProperties": 1,
    "dependentRequired": {"header": ["equals"], "equals": ["header"]},
    "description": "What a request must show; both kinds may be combined.",
}

_INPUT: Schema = {
    **closed(
        path=text("The route, behind `/in/<pipeline>`.", default="/", pattern=r"^/"),
        method=choice("The method it answers to.", *METHODS, default="POST"),
        auth=_AUTH,
        respond=choice(
            "When it answers: once the packet is on disk, or once it has settled.",
            "accepted",
            "delivered",
            default="accepted",
        ),
        timeout=duration("How long `respond: delivered` waits.", default="30s"),
        listen=integer(
            "A port of its own on 127.0.0.1, beside the gateway's.", minimum=1, maximum=65535
        ),
    ),
    "description": "Takes HTTP requests, each a packet.",
}

MANIFEST = Manifest(
    name="http",
    summary="Takes HTTP requests, and sends them.",
    input=Role(_INPUT),
    tap=Role(
        request_schema("Sends a request; data stays as it is.", "`<packet_id>:<node>`"),
        effect="external",
    ),
    transform=Role(
        request_schema(
            "Sends a request; the answer becomes the data, parsed when it is JSON.",
            "`<packet_id>:<node>`",
        ),
        effect="external",
    ),
    output=OutputRole(
        request_schema("Sends one request for each packet.", "the packet's key"),
        effect="write",
        checks=("status", "follow_up"),
    ),
    checks={
        "status": Role(
            {
                **closed(success=statuses("The stored statuses that pass.")),
                "description": "The status of the write is one of `success`.",
            }
        ),
        "follow_up": Role(
            {
                **closed(
                    required=("url",),
                    url=text(
                        "Where to look, with a GET of up to 5 s and 1 MiB. Redirects are "
                        "followed within the host."
                    ),
                    headers=map_of({"type": "string"}, "The request's headers.", **KEEPS_KEYS),
                    success=statuses("The statuses that count as an answer."),
                    match={
                        **anything(
                            "A text that the body must contain, or an object that must be part "
                            "of its JSON. A value that the packet lacks is null here."
                        ),
                        **KEEPS_ALL_KEYS,
                    },
                ),
                "description": "A GET succeeds, and its body holds `match`.",
            }
        ),
    },
)
