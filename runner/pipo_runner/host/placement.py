"""Which of several hosts takes up a pipeline that has none: plain functions over plain data.

Hosts do not talk to each other. Each sees the same home, deals what is orphaned to those that
are alive by the same rule, and takes its own part; the claim, a lock, decides where two see it
differently. What another host was dealt and leaves lying (it is frozen, or saw it later) is
taken by whoever waited a little longer. So a dead host's pipelines are spread over the others,
nothing is started twice, and nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipo_runner.host.policy import Action

# How long another host's pipeline is left alone: that host may be coming back.
FAILOVER_AFTER_MS = 3000
# How much longer the part of another living host is.
OTHERS_AFTER_MS = 3000


def deal(orphans: Iterable[str], loads: Mapping[str, int]) -> dict[str, str]:
    """The host for each orphan: by name, one after the other, always to the least loaded.

    `loads` are the pipelines that each living host supervises; ties go by id. Hosts that see
    the same deal the same, also after one of them took some of its part.
    """
    left = dict(loads)
    dealt: dict[str, str] = {}
    for name in sorted(orphans):
        host = min(left, key=lambda id: (left[id], id))
        left[host] += 1
        dealt[name] = host
    return dealt


def due(action: Action, *, ours: bool, dealt: bool, orphaned_ms: int) -> bool:
    """Whether this host takes an orphan up now.

    `ours` when this host (or its predecessor of the same name) had it, `dealt` when it is in
    this host's part, `orphaned_ms` since this host first saw it without one.

    T1  was ours                               at once: a restart stays where it is
    T2  its process is alive, our part         at once
    T3  its process is alive, another's part   after OTHERS_AFTER_MS
    T4  its process is gone, our part          after FAILOVER_AFTER_MS
    T5  its process is gone, another's part    after both
    """
    if ours:
        return True
    wait_ms = 0 if action is Action.ADOPT else FAILOVER_AFTER_MS
    return orphaned_ms >= wait_ms + (0 if dealt else OTHERS_AFTER_MS)
