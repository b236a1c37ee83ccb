"""What of a running pipeline may change under it, and what is bound at its start. Pure.

Bound: what the process has built its parts and its doors from. `concurrency` (L032), how
packets come in (`via`, `with`, `format` of each input, and which inputs there are), where they
go (`output.to`; its `with` is free, so a chain's receiver may change, C036), the secrets, which
are resolved once, the lifetime, and the watch for stalls. Everything else is a packet's own
affair and goes by the version that accepted it.

Source: edge 252, 348, 350; the seeds on chains and on concurrency.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipo.lang.model import Input, Pipeline


def bound_keys(now: Pipeline, then: Pipeline) -> list[str]:
    """The keys that differ and are bound at start, as the file writes them."""
    return [*_top(now, then), *_inputs(now, then), *_rest(now, then)]


def _top(now: Pipeline, then: Pipeline) -> Iterator[str]:
    if now.name != then.name:
        yield "name"
    if now.secrets != then.secrets:
        yield "secrets"
    if now.lifetime != then.lifetime:
        yield "lifetime"
    if now.concurrency != then.concurrency:
        yield "concurrency"


def _inputs(now: Pipeline, then: Pipeline) -> Iterator[str]:
    before = {entry.name: entry for entry in now.inputs}
    after = {entry.name: entry for entry in then.inputs}
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            yield _place(name, then if name in after else now)
        else:
            place = _place(name, then)
            yield from (f"{place}.{key}" for key in _differing(before[name], after[name]))


def _differing(before: Input, after: Input) -> Iterator[str]:
    if before.via != after.via:
        yield "via"
    if before.settings != after.settings:
        yield "with"
    if before.format != after.format:
        yield "format"
    if before.on_invalid.respond != after.on_invalid.respond:
        yield "on_invalid.respond"


def _place(name: str, pipeline: Pipeline) -> str:
    """`input` for the one of a file that has a single one, else `inputs.<name>`."""
    alone = len(pipeline.inputs) == 1 and name == "input"
    return "input" if alone else f"inputs.{name}"


def _rest(now: Pipeline, then: Pipeline) -> Iterator[str]:
    if now.output.to != then.output.to:
        yield "output.to"
    if now.delivered.stall != then.delivered.stall:
        yield "delivered.stall"
    elif now.delivered.stall is not None and _on_stall(now) != _on_stall(then):
        yield "agent.on_stall"


def _on_stall(pipeline: Pipeline) -> str | None:
    return None if pipeline.agent is None else pipeline.agent.on_stall
