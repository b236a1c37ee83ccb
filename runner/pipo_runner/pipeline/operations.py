"""What callers may have done to the packets of a running pipeline, over its assembled parts.

Each operation is a module of its own; they share the turn in which one group at a time is
looked up and committed (`orders`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pipo.connectors import registry as connectors
from pipo_runner.pipeline.assembly import Parts, Surroundings
from pipo_runner.pipeline.orders.dead_letters import DeadLetters
from pipo_runner.pipeline.orders.orders import Orders, WayBack
from pipo_runner.pipeline.orders.reruns import Reruns
from pipo_runner.pipeline.orders.resolving import Resolutions


@dataclass(frozen=True, slots=True)
class Operations:
    dead_letters: DeadLetters
    reruns: Reruns
    resolutions: Resolutions


class May(Protocol):
    """The process's word on whether something may be done to it now."""

    def __call__(self, what: str, *, draining: bool = False) -> None:
        """Raises: PipoError, unless it runs or, where that will do, drains."""


def operations(
    name: str,
    around: Surroundings,
    parts: Parts,
    *,
    prepare: Callable[[set[int]], Awaitable[None]],
    may: May,
) -> Operations:
    """`prepare` makes ready what packets of older versions need, and raises where it cannot."""
    orders = Orders(around.journal, around.timers)
    way_back = WayBack(
        pending=parts.pending,
        take_places=parts.admission.take_again,
        next_place=parts.intake.next_place,
        enqueue=parts.executor.enqueue,
    )

    def agents_may() -> bool:
        policy = around.plans.current().pipeline.agent
        return policy is not None and policy.control

    return Operations(
        dead_letters=DeadLetters(
            name=name,
            journal=around.journal,
            plan_of=around.plans.of,
            prepare=prepare,
            may_replay=partial(may, "replay"),
            may_purge=partial(may, "purge", draining=True),
            orders=orders,
            way_back=way_back,
            clock=around.clock,
            redact=around.redact,
        ),
        reruns=Reruns(
            name=name,
            journal=around.journal,
            orders=orders,
            plans=around.plans,
            manifests=connectors.manifests(),
            prepare=prepare,
            may=partial(may, "rerun"),
            way_back=way_back,
            clock=around.clock,
            redact=around.redact,
        ),
        resolutions=Resolutions(
            name=name,
            journal=around.journal,
            orders=orders,
            may=partial(may, "resolve"),
            agents_may=agents_may,
            way_back=way_back,
            clock=around.clock,
            redact=around.redact,
        ),
    )
