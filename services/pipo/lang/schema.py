"""The blocks of a `.pipo` file as JSON Schema: the one statement of their keys and values.

`with:` blocks are left open here; each connector's manifest closes its own. The
check reads P002 from these schemas, and an editor's schema is made from them.

Source: facts §1, §2.
"""

from __future__ import annotations

from typing import Any, Final

from pipo.durations import PATTERN as DURATION

Schema = dict[str, Any]

NAME: Final = r"^[a-z0-9][a-z0-9-]*$"
# Its files in the home are called by it, with endings.
NAME_MAX: Final = 200
NODE_ID: Final = r"^[A-Za-z_][A-Za-z0-9_-]*$"
STATUS: Final = r"^([1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?)$"
THEN: Final = ("dead_letter", "drop", "continue", "pause", "halt", "agent")


def _closed(properties: dict[str, Schema], description: str, *required: str) -> Schema:
    made: Schema = {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": properties,
    }
    return {**made, "required": list(required)} if required else made


def _text(description: str, **limits: Any) -> Schema:
    return {"type": "string", "description": description, **limits}


def _literal(description: str, pattern: str, **more: Any) -> Schema:
    """A text of a form that no template makes: it is read before anything is rendered."""
    return _text(description, pattern=pattern, **{"x-literal": True}, **more)


def _whole(description: str, **limits: Any) -> Schema:
    return {"type": "integer", "description": description, **limits}


def _span(description: str, default: str | None = None, least: str | None = None) -> Schema:
    made = _literal(description, DURATION)
    if least:
        made["x-least"] = least
    return {**made, "default": default} if default else made


def _word(description: str, *words: str, default: str | None = None) -> Schema:
    made: Schema = {"enum": list(words), "description": description}
    return {**made, "default": default} if default else made


def _list(description: str, items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items, "description": description, **limits}


FROM: Final[Schema] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ],
    "description": "Where packets come from: an input, a node, `route.branch`, or a list of them.",
}
WITH: Final[Schema] = {"type": "object", "description": "The connector's settings."}
RULES: Final = _list("Expressions that must all hold, judged in order.", {"type": "string"})
MESSAGE: Final = _text("A template for the error's text; the raw error unless set.")
AFTERWARDS: Final = _word("What becomes of the packet.", *THEN, default="dead_letter")

ERROR_POLICY: Final = {
    "retry": _whole("Attempts after the first.", minimum=0, default=0),
    "backoff": _word(
        "Whether each wait is `delay`, or doubles from it.", "fixed", "exponential", default="fixed"
    ),
    "delay": _span("The wait before the first retry.", "1s"),
    "max_delay": _span("The longest single wait.", "1m"),
    "then": AFTERWARDS,
    "message": MESSAGE,
}

ON_INVALID: Final = _closed(
    {
        "respond": _whole("The HTTP status of a rejection.", minimum=400, maximum=599, default=422),
        "then": _word(
            "What else happens; an input takes only `agent`, the output does `dead_letter` unless set.",
            *THEN,
        ),
        "message": MESSAGE,
    },
    "What a failed rule leads to.",
)

LOOP: Final = _closed(
    {
        "back_to": _text("The node that packets go back to."),
        "until": _text("An expression on the node's result; when it holds, packets go on."),
        "max": _whole("How often a packet may be sent back.", minimum=1),
        "then": AFTERWARDS,
    },
    "Sends packets back until a condition holds.",
    "back_to",
    "until",
    "max",
)

INPUT: Final = _closed(
    {
        "via": _text("The connector that packets come through."),
        "with": WITH,
        "format": _word(
            "How bodies are read.", "json", "text", "csv", "form", "bytes", default="json"
        ),
        "schema": _text("A JSON Schema file that data must match."),
        "validate": RULES,
        "on_invalid": ON_INVALID,
    },
    "One way in, such as `{ via: push }`.",
    "via",
)

NODE: Final = _closed(
    {
        "from": FROM,
        "label": _text("A name to show."),
        "tap": _text("A side effect that leaves data unchanged: a connector, or `fn.<name>`."),
        "transform": _text("What makes new data: a connector, or `fn.<name>`."),
        "filter": _text("An expression; packets for which it is false end as filtered."),
        "route": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "string"},
            "description": "Branches and their expressions, the first true one wins; `else` last.",
        },
        "agent": _text("The agent whose answer becomes the data."),
        "with": WITH,
        "on_error": _closed(ERROR_POLICY, "What a failed attempt leads to."),
        "loop": LOOP,
    },
    "One step.",
    "from",
)

OUTPUT: Final = _closed(
    {
        "from": FROM,
        "to": _text("The connector that packets are written through."),
        "with": WITH,
        "batch": _closed(
            {
                "size": _whole("How many packets at most.", minimum=1),
                "within": _span("How long the first one waits.", "1s"),
            },
            "Writes several packets at once, all or none.",
            "size",
        ),
        "validate": RULES,
        "on_invalid": ON_INVALID,
        "on_error": _closed(ERROR_POLICY, "What a failed write leads to."),
    },
    "The one destination, such as `{ from: input, to: stdout }`.",
    "from",
    "to",
)

DELIVERED: Final = _closed(
    {
        "check": _text("How a written packet is verified.", default="ack"),
        "with": {**WITH, "description": "The check's settings."},
        "within": _span("How long the check keeps looking.", "10s"),
        "on_fail": _closed(ERROR_POLICY, "What an unverified packet leads to."),
        "stall": _closed(
            {
                "after": _span("How long nothing may get through."),
                "then": _word(
                    "What happens besides the event.", "notify", "pause", "agent", default="notify"
                ),
                "message": _text("A template for the event's text; a built-in one unless set."),
            },
            "Notices when packets wait and none gets through.",
            "after",
        ),
    },
    "How delivery is verified, and stalls noticed.",
)

LIFETIME: Final = _closed(
    {
        "ttl": _span("How long the pipeline lives, from its first start.", least="1ms"),
        "max_packets": _whole("How many packets it accepts, all inputs together.", minimum=1),
        "until": _text("An expression on `stats`; when it holds, the pipeline ends."),
        "on_end": _word("How it ends.", "drain", "stop", default="drain"),
        "drain_timeout": _span("How long a drain may take.", "2m"),
    },
    "When the pipeline ends by itself.",
)

AGENT: Final = _closed(
    {
        "control": {
            "type": "boolean",
            "default": False,
            "description": "Whether agents may operate this pipeline.",
        },
        "actions": _list(
            "What agents may do.",
            {"enum": ["pause", "resume", "replay", "purge", "rerun", "push", "ack"]},
        ),
        "edit": _list("Dotted paths that agents may propose changes to.", {"type": "string"}),
        "redact": _list("Dotted data paths that agents never see.", {"type": "string"}),
        "on_stall": _word("What a stall leads to.", "notify", "handle", default="notify"),
        "verify": _text("`last N`: the packets that a proposal is tried on."),
    },
    "What agents may do.",
)

AGENT_BUDGET: Final = _closed(
    {
        "per_day": {"type": "number", "minimum": 0, "description": "US dollars a day."},
        "reset_at": _literal(
            "When the day starts.", r"^([01][0-9]|2[0-3]):[0-5][0-9]$", default="00:00"
        ),
        "per_packet": _whole("Tokens for one packet.", minimum=1),
        "warn_at": _literal("A warning at this part of the day's budget.", r"^[0-9]{1,3}%$"),
    },
    "What agent nodes may cost.",
)

RETENTION: Final = _closed(
    {
        "data": _span("Payloads of delivered and filtered packets.", "7d"),
        "trail": _span("Settled packets and their events.", "30d"),
        "rejected": _span("Payloads of rejected packets.", "3d"),
        "dlq": {
            "anyOf": [
                {"const": "forever"},
                _span("How long they are kept; `forever` keeps them until they are purged."),
            ],
            "description": "Dead letters: `forever`, or a duration.",
            "default": "forever",
        },
    },
    "How long the journal keeps data.",
)

FILE: Final = _closed(
    {
        "pipo": {"const": 1, "description": "The version of the language: `pipo: 1`."},
        "name": _literal("The pipeline's name, unique in a home.", NAME, maxLength=NAME_MAX),
        "description": _text("What the pipeline is for."),
        "fn": _text("A Python file of functions, relative to this file."),
        "secrets": {
            "type": "object",
            "additionalProperties": _literal("Where the secret is.", r"^(op://|env:|file:/)"),
            "description": "Named references, resolved once at start.",
        },
        "lifetime": LIFETIME,
        "concurrency": _whole("How many packets are worked on at once.", minimum=1, default=4),
        "buffer": _closed(
            {"max": _whole("Pending packets before inputs push back.", minimum=1, default=10_000)},
            "How much may wait.",
        ),
        "errors": _closed(ERROR_POLICY, "The default error policy."),
        "input": INPUT,
        "inputs": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": NODE_ID},
            "additionalProperties": INPUT,
            "description": "Several ways in, by name.",
        },
        "nodes": {
            "type": "object",
            "propertyNames": {"pattern": NODE_ID},
            "additionalProperties": NODE,
            "description": "The steps, by id.",
        },
        "output": OUTPUT,
        "delivered": DELIVERED,
        "agent": AGENT,
        "agent_budget": AGENT_BUDGET,
        "retention": RETENTION,
    },
    "A pipeline.",
    "pipo",
    "name",
    "output",
)
