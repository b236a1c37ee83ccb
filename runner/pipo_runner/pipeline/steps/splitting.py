"""A unit that splits: its copies as they move, and as they are journaled (edge 110-122).

A copy is its unit but for its id, its branch and where it goes. It has the unit's place in
the queue, so that a packet's copies go before whatever came after the packet, in the order
of their ids. What is not known of the unit's writes is not known of its copies' either: a
crash may have forgotten the split, and not what a copy wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipo.journal.changes import Copy
from pipo_runner.pipeline.definition.plan import Fork
from pipo_runner.pipeline.flow.units import Unit


def copies_of(unit: Unit, forks: Sequence[Fork]) -> list[Unit]:
    """The copies of a unit that stands behind the step that splits it, one for each fork."""
    made: list[Unit] = []
    for fork in forks:
        branch = f"{unit.branch}/{fork.name}" if unit.branch else fork.name
        made.append(
            replace(
                unit,
                id=f"{unit.packet_id}:{branch}",
                branch=branch,
                cursor=fork.cursor,
                attempt=0,
                key=None,
                write_no=0,
                # An ack that came before the split is for each copy's first write.
                acked_write_no=1 if unit.acked else None,
                entered=0.0,
                last_error="",
                stall=None,
            )
        )
    return made


def as_journaled(copies: Sequence[Unit]) -> tuple[Copy, ...]:
    """The copies as the change that splits their unit names them."""
    return tuple(Copy(copy.branch, copy.cursor, copy.queue_seq) for copy in copies)
