"""Policies: P031 to P035, P066."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipo.lang.document import Map, Scalar
from pipo.lang.draft import Draft, map_of, text_of, value_of
from pipo.lang.schema import THEN
from pipo.lang.suggest import one_of

UNIVERSAL_CHECKS: Final = ("ack", "external", "none")

_TO_THE_OUTPUT: Final = ("dead_letter", "pause", "halt", "agent")
# Where a `then` stands → what it may be (facts §6).
ALLOWED: Final = {
    "a tap's on_error": THEN,
    "on_error": tuple(word for word in THEN if word != "continue"),
    "loop": tuple(word for word in THEN if word != "continue"),
    "errors": _TO_THE_OUTPUT,
    "output.on_error": _TO_THE_OUTPUT,
    "output.on_invalid": _TO_THE_OUTPUT,
    "delivered.on_fail": _TO_THE_OUTPUT,
    "an input's on_invalid": ("agent",),
    "stall": ("notify", "pause", "agent"),
}
_IDLE_KEYS: Final = ("retry", "backoff", "delay", "max_delay")


def supported_checks(own: tuple[str, ...]) -> tuple[str, ...]:
    """The checks that an output takes, in the order that a refusal lists them."""
    return ("ack", *own, "external", "none")


def checks(draft: Draft) -> None:
    """P031, P032."""
    to = draft.output.text("to") if draft.output else None
    role = draft.output_role(to.value) if to else None
    if to is None or role is None or draft.output is None:
        return
    delivered = draft.block("delivered")
    check = text_of(delivered, "check") if delivered else None
    supported = supported_checks(role.checks)
    if check and check.value not in supported:
        message = f"delivered.check '{check.value}' is not supported by output '{to.value}'"
        draft.report("P031", check, message, f"supported: {', '.join(supported)}")
    batch = draft.output.map.get("batch")
    if batch and draft.output.sound and not role.batches:
        able = [
            name
            for name in draft.names("output")
            if getattr(draft.output_role(name), "batches", False)
        ]
        message = f"the output '{to.value}' does not write in batches"
        draft.report("P032", batch, message, f"batch works with: {', '.join(able)}")


def thens(draft: Draft) -> None:
    """P033, P034."""
    agent = draft.block("agent")
    controlled = "agent" in draft.broken or bool(agent and value_of(agent, "control") is True)
    for where, block in _policies(draft):
        then = text_of(block, "then")
        if then is None:
            continue
        if then.value not in ALLOWED[where]:
            message = f"`then: {then.value}` is not allowed in {where}"
            draft.report("P033", then, message, one_of(then.value, ALLOWED[where], "allowed"))
        elif then.value == "agent" and not controlled:
            _uncontrolled(draft, then)
    on_stall = text_of(agent, "on_stall") if agent else None
    if on_stall and on_stall.value == "handle" and not controlled:
        _uncontrolled(draft, on_stall)


def _uncontrolled(draft: Draft, value: Scalar) -> None:
    draft.report("P034", value, f"`{value.value}` hands over to agents, which have no control here")


def _policies(draft: Draft) -> Iterator[tuple[str, Map]]:
    """Every block that may hold a `then`, with its row of `ALLOWED`."""
    found: list[tuple[str, Map | None]] = [("errors", draft.block("errors"))]
    for block in draft.sound_inputs:
        found.append(("an input's on_invalid", map_of(block.map, "on_invalid")))
    for node in draft.sound_nodes:
        is_lenient = node.kind in ("tap", "")
        where = "a tap's on_error" if is_lenient else "on_error"
        found += [(where, map_of(node.map, "on_error")), ("loop", map_of(node.map, "loop"))]
    if output := draft.sound_output:
        found.append(("output.on_error", map_of(output.map, "on_error")))
        found.append(("output.on_invalid", map_of(output.map, "on_invalid")))
    if delivered := draft.block("delivered"):
        found.append(("delivered.on_fail", map_of(delivered, "on_fail")))
        found.append(("stall", map_of(delivered, "stall")))
    return ((where, block) for where, block in found if block)


def answers(draft: Draft) -> None:
    """P035."""
    for block in draft.sound_inputs:
        via = block.text("via")
        if via and via.value != "http":
            _no_answer(draft, block.map, f"an input via {via.value} answers no request")
    if draft.sound_output:
        _no_answer(draft, draft.sound_output.map, "the output answers no request")


def _no_answer(draft: Draft, block: Map, message: str) -> None:
    policy = map_of(block, "on_invalid")
    respond = policy.get("respond") if policy else None
    if respond:
        draft.report("P035", respond, message)


def idle_keys(draft: Draft) -> None:
    """P066."""
    delivered = draft.block("delivered")
    policy = map_of(delivered, "on_fail") if delivered else None
    for name in _IDLE_KEYS if policy else ():
        key = policy.key(name) if policy else None
        if key:
            draft.report("P066", key, f"`{name}` does nothing in `on_fail`")
