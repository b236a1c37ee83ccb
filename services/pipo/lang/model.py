"""A pipeline as the rest of Pipo sees it: typed, frozen, with every default applied.

`build` makes it from the data of a file that passed its check, and is the one
place where defaults stand. Templates and expressions stay text; settings (`with`)
stay as written. Durations are milliseconds.

Source: facts §1, §2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipo import durations

Kind = Literal["tap", "transform", "filter", "route", "agent"]
Backoff = Literal["fixed", "exponential"]
Then = Literal["dead_letter", "drop", "continue", "pause", "halt", "agent"]

KINDS: tuple[Kind, ...] = ("tap", "transform", "filter", "route", "agent")


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What a failed attempt leads to; `message` None is the error's own text."""

    retry: int = 0
    backoff: Backoff = "fixed"
    delay_ms: float = 1000.0
    max_delay_ms: float = 60_000.0
    then: Then = "dead_letter"
    message: str | None = None


@dataclass(frozen=True, slots=True)
class OnInvalid:
    """What a failed rule leads to; an input rejects in any case, `then` tells an agent."""

    respond: int = 422
    then: Then | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One way in; a single `input:` has the name `input`."""

    name: str
    via: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    format: str = "json"
    schema: str | None = None
    validate: tuple[str, ...] = ()
    on_invalid: OnInvalid = OnInvalid()


@dataclass(frozen=True, slots=True)
class Loop:
    """Sends a packet back until a condition holds, at most `max` times."""

    back_to: str
    until: str
    max: int
    then: Then = "dead_letter"


@dataclass(frozen=True, slots=True)
class Node:
    """One step.

    `uses` is a connector's or agent's name, `fn.<name>`, or a filter's expression;
    empty for a route, whose branches are `routes`. `on_error` is resolved.
    """

    id: str
    sources: tuple[str, ...]
    kind: Kind
    uses: str = ""
    routes: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_error: ErrorPolicy = ErrorPolicy()
    loop: Loop | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Packets written at once: as soon as there are `size`, or the first has waited."""

    size: int
    within_ms: float = 1000.0


@dataclass(frozen=True, slots=True)
class Output:
    """The one destination; `raw` is the block as written, for the variable `output`."""

    sources: tuple[str, ...]
    to: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    batch: Batch | None = None
    validate: tuple[str, ...] = ()
    on_invalid: OnInvalid = OnInvalid(then="dead_letter")
    on_error: ErrorPolicy = ErrorPolicy()
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stall:
    """What happens when packets are pending and none gets through for `after_ms`."""

    after_ms: float
    then: Literal["notify", "pause", "agent"] = "notify"
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """How a written packet is verified; `on_fail` inherits nothing."""

    check: str = "ack"
    settings: Mapping[str, Any] = field(default_factory=dict)
    within_ms: float = 10_000.0
    on_fail: ErrorPolicy = ErrorPolicy()
    stall: Stall | None = None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When the pipeline ends by itself."""

    ttl_ms: float | None = None
    max_packets: int | None = None
    until: str | None = None
    on_end: Literal["drain", "stop"] = "drain"
    drain_timeout_ms: float = 120_000.0
    ttl: str | None = field(default=None, compare=False)
    """As the file writes it; `2h` and `120m` are the same."""


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """What agents may do; `verify` is how many packets a proposal is tried on."""

    control: bool = False
    actions: tuple[str, ...] = ()
    edit: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    on_stall: Literal["notify", "handle"] = "notify"
    verify: int | None = None


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Caps on what agent nodes may cost: USD a day, tokens a packet, a warning in per cent."""

    per_day_usd: float | None = None
    reset_at: str = "00:00"
    per_packet_tokens: int | None = None
    warn_at_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the journal keeps what; `dlq_ms` None is forever."""

    data_ms: float = 7 * 86_400_000.0
    trail_ms: float = 30 * 86_400_000.0
    rejected_ms: float = 3 * 86_400_000.0
    dlq_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline."""

    name: str
    inputs: tuple[Input, ...]
    output: Output
    nodes: tuple[Node, ...] = ()
    delivered: Delivered = Delivered()
    description: str | None = None
    fn: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    lifetime: Lifetime | None = None
    concurrency: int = 4
    buffer_max: int = 10_000
    errors: ErrorPolicy | None = None
    agent: AgentPolicy | None = None
    agent_budget: AgentBudget | None = None
    retention: Retention = Retention()

    def node(self, node_id: str) -> Node:
        """The node of an id.

        Raises: KeyError, when there is none.
        """
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)


def build(data: Mapping[str, Any]) -> Pipeline:
    """The model of a file's data, which must have passed its check."""
    errors = _policy(data["errors"], ErrorPolicy()) if "errors" in data else None
    inherited = errors or ErrorPolicy()
    inputs = data.get("inputs") or {"input": data["input"]}
    settings = {
        "description": data.get("description"),
        "fn": data.get("fn"),
        "secrets": data.get("secrets"),
        "concurrency": _whole(data.get("concurrency")),
        "buffer_max": _whole(data.get("buffer", {}).get("max")),
        "lifetime": _lifetime(data["lifetime"]) if "lifetime" in data else None,
        "delivered": _delivered(data["delivered"]) if "delivered" in data else None,
        "agent": _agent(data["agent"]) if "agent" in data else None,
        "agent_budget": _budget(data["agent_budget"]) if "agent_budget" in data else None,
        "retention": _retention(data["retention"]) if "retention" in data else None,
    }
    return Pipeline(
        name=data["name"],
        inputs=tuple(_input(name, block) for name, block in inputs.items()),
        nodes=tuple(_node(name, b, inherited) for name, b in data.get("nodes", {}).items()),
        output=_output(data["output"], inherited),
        errors=errors,
        **_given(settings),
    )


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are there; a dataclass default stands for the others."""
    return {name: value for name, value in settings.items() if value is not None}


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _ms(text: str | None) -> float | None:
    return None if text is None else durations.parse(text)


def _sources(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))


def _policy(block: Mapping[str, Any], inherited: ErrorPolicy) -> ErrorPolicy:
    settings = {
        "retry": _whole(block.get("retry")),
        "backoff": block.get("backoff"),
        "delay_ms": _ms(block.get("delay")),
        "max_delay_ms": _ms(block.get("max_delay")),
        "then": block.get("then"),
        "message": block.get("message"),
    }
    return replace(inherited, **_given(settings))


def _on_invalid(block: Mapping[str, Any], default: OnInvalid) -> OnInvalid:
    settings = {
        "respond": _whole(block.get("respond")),
        "then": block.get("then"),
        "message": block.get("message"),
    }
    return replace(default, **_given(settings))


def _input(name: str, block: Mapping[str, Any]) -> Input:
    return Input(
        name=name,
        via=block["via"],
        settings=block.get("with", {}),
        format=block.get("format", "json"),
        schema=block.get("schema"),
        validate=tuple(block.get("validate", ())),
        on_invalid=_on_invalid(block.get("on_invalid", {}), OnInvalid()),
    )


def _node(node_id: str, block: Mapping[str, Any], inherited: ErrorPolicy) -> Node:
    kind = next(kind for kind in KINDS if kind in block)
    uses = block[kind]
    return Node(
        id=node_id,
        sources=_sources(block["from"]),
        kind=kind,
        uses="" if kind == "route" else uses,
        routes=tuple(uses.items()) if kind == "route" else (),
        settings=block.get("with", {}),
        on_error=_policy(block.get("on_error", {}), inherited),
        loop=_loop(block["loop"]) if "loop" in block else None,
        label=block.get("label"),
    )


def _loop(block: Mapping[str, Any]) -> Loop:
    return Loop(
        back_to=block["back_to"],
        until=block["until"],
        max=int(block["max"]),
        then=block.get("then", "dead_letter"),
    )


def _output(block: Mapping[str, Any], inherited: ErrorPolicy) -> Output:
    return Output(
        sources=_sources(block["from"]),
        to=block["to"],
        settings=block.get("with", {}),
        batch=_batch(block["batch"]) if "batch" in block else None,
        validate=tuple(block.get("validate", ())),
        on_invalid=_on_invalid(block.get("on_invalid", {}), OnInvalid(then="dead_letter")),
        on_error=_policy(block.get("on_error", {}), inherited),
        raw=block,
    )


def _batch(block: Mapping[str, Any]) -> Batch:
    return Batch(int(block["size"]), **_given({"within_ms": _ms(block.get("within"))}))


def _delivered(block: Mapping[str, Any]) -> Delivered:
    settings = {
        "check": block.get("check"),
        "settings": block.get("with"),
        "within_ms": _ms(block.get("within")),
        "on_fail": _policy(block.get("on_fail", {}), ErrorPolicy()),
        "stall": _stall(block["stall"]) if "stall" in block else None,
    }
    return Delivered(**_given(settings))


def _stall(block: Mapping[str, Any]) -> Stall:
    more = {"then": block.get("then"), "message": block.get("message")}
    return Stall(durations.parse(block["after"]), **_given(more))


def _lifetime(block: Mapping[str, Any]) -> Lifetime:
    settings = {
        "ttl_ms": _ms(block.get("ttl")),
        "max_packets": _whole(block.get("max_packets")),
        "until": block.get("until"),
        "on_end": block.get("on_end"),
        "drain_timeout_ms": _ms(block.get("drain_timeout")),
        "ttl": block.get("ttl"),
    }
    return Lifetime(**_given(settings))


def _agent(block: Mapping[str, Any]) -> AgentPolicy:
    verify = block.get("verify")
    settings = {
        "control": block.get("control"),
        "actions": tuple(block.get("actions", ())),
        "edit": tuple(block.get("edit", ())),
        "redact": tuple(block.get("redact", ())),
        "on_stall": block.get("on_stall"),
        "verify": int(verify.split()[1]) if verify else None,
    }
    return AgentPolicy(**_given(settings))


def _budget(block: Mapping[str, Any]) -> AgentBudget:
    warn_at = block.get("warn_at")
    settings = {
        "per_day_usd": block.get("per_day"),
        "reset_at": block.get("reset_at"),
        "per_packet_tokens": _whole(block.get("per_packet")),
        "warn_at_percent": int(warn_at.removesuffix("%")) if warn_at else None,
    }
    return AgentBudget(**_given(settings))


def _retention(block: Mapping[str, Any]) -> Retention:
    dlq = block.get("dlq", "forever")
    settings = {
        "data_ms": _ms(block.get("data")),
        "trail_ms": _ms(block.get("trail")),
        "rejected_ms": _ms(block.get("rejected")),
        "dlq_ms": None if dlq == "forever" else _ms(dlq),
    }
    return Retention(**_given(settings))
