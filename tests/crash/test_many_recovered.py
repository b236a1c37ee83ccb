"""Many packets are recovered by one request, and the pipeline is killed amid its groups.

The pipeline is paused, so that what was taken up stays where the commit put it. Afterwards the
request is sent again until it is answered: each packet was taken up once, stands in one legal
state, and the journal's counts and the destination agree.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.crash.dying import Dies
from tests.packets import push
from tests.stack import journal_of, query, query_each, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# More than a group of one commit holds.
FEW: Final = 200
MANY: Final = 10_000
IDS_LIMIT: Final = 1000


@dataclass(frozen=True)
class Recovery:
    """One way to recover packets: what kind they are of, how they wait for it, and the event."""

    kind: str
    data: Callable[[int], object]
    waits_as: str
    event: str
    ends_as: str
    path: str
    fields: dict[str, Any]
    points: tuple[str, ...]


WAYS = {
    "replay": Recovery(
        "failing",
        lambda n: {"n": n},
        "dead_lettered",
        "dlq.replayed",
        # Its cause stands.
        "dead_lettered",
        "dlq/replay",
        {"all": True},
        ("dlq.before_replay_commit:2", "dlq.after_replay_commit:2"),
    ),
    "purge": Recovery(
        "failing",
        lambda n: {"n": n},
        "dead_lettered",
        "dlq.purged",
        "gone",
        "dlq/purge",
        {"all": True},
        ("dlq.before_purge_commit:2", "dlq.after_purge_commit:2"),
    ),
    "rerun": Recovery(
        "failing",
        lambda n: {"n": f"n{n}"},
        "delivered",
        "packet.rerun",
        "delivered",
        "rerun",
        {"all": True, "from": "shape"},
        ("rerun.before_commit:2", "rerun.after_commit:2"),
    ),
    "resolve": Recovery(
        "handed",
        lambda n: {"n": n},
        "escalated",
        "packet.resolved",
        "escalated",
        "resolve",
        {"action": "retry"},
        ("resolve.before_commit", "resolve.after_commit"),
    ),
}
QUICK = (("replay", 1), ("rerun", 0))
CASES = [
    pytest.param(
        (WAYS[way].kind, point),
        way,
        count,
        marks=[pytest.mark.soak, pytest.mark.timeout(3600)] if count == MANY else [],
        id=f"{way}-{point}-{count}",
    )
    for way in WAYS
    for index, point in enumerate(WAYS[way].points)
    for count in (FEW, MANY)
    if count == MANY or (way, index) in QUICK
]


@pytest.mark.seed("R025", "R038", "R061")
@pytest.mark.parametrize(("dies", "way", "count"), CASES, indirect=["dies"])
def test_each_is_taken_up_once(dies: Dies, way: str, count: int) -> None:
    recovery = WAYS[way]
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda n: push(dies.stack, "dies", recovery.data(n)), range(count))
        ids = sorted(made)
    deadline_s = 60 + count / 20
    wait_for(
        lambda: dies.stack.stats("dies").get(recovery.waits_as) == count, deadline_s=deadline_s
    )
    assert dies.stack.pipo("pause", "dies").returncode == 0
    recover(dies, recovery, ids)
    dies.after_the_crash()
    recover(dies, recovery, ids)
    taken = taken_up(dies, recovery)
    assert sorted(taken) == ids
    assert set(taken.values()) == {1}
    if recovery.ends_as != "gone":
        assert dies.stack.stats("dies")["pending"] == count
    assert dies.stack.pipo("resume", "dies").returncode == 0
    left = 0 if recovery.ends_as == "gone" else count
    wait_for(lambda: settled_again(dies, recovery) == left, deadline_s=deadline_s)
    # What died or was handed over again was not taken up once more.
    assert taken_up(dies, recovery) == taken
    found, counts, twice = query_each(
        [
            (journal_of(dies.stack.home, "dies"), sql)
            for sql in (
                "SELECT state, count(*) FROM units GROUP BY state",
                "SELECT name, value FROM counters WHERE name LIKE 'now.%' AND value > 0",
                "SELECT id FROM units GROUP BY id HAVING count(*) > 1",
            )
        ]
    )
    states = {str(state): int(rows) for state, rows in found}
    assert states == ({} if not left else {recovery.ends_as: left})
    assert {f"now.{state}": rows for state, rows in states.items()} == dict(counts)
    assert twice == []
    if way == "rerun":
        assert dies.written() == ids


def recover(dies: Dies, recovery: Recovery, ids: list[str]) -> None:
    """The request, as often as it takes for what is left; a refusal means that it was done."""
    if recovery.path != "resolve":
        dies.ask(recovery.path, **recovery.fields)
        return
    for start in range(0, len(ids), IDS_LIMIT):
        dies.ask(recovery.path, ids=ids[start : start + IDS_LIMIT], **recovery.fields)


def taken_up(dies: Dies, recovery: Recovery) -> dict[str, int]:
    """How often each packet was."""
    sql = f"SELECT unit, count(*) FROM events WHERE type = '{recovery.event}' GROUP BY unit"
    return {str(id): int(n) for id, n in query(journal_of(dies.stack.home, "dies"), sql)}


def settled_again(dies: Dies, recovery: Recovery) -> int:
    stats = dies.stack.stats("dies")
    if recovery.ends_as == "gone":
        return int(stats.get("dead_lettered", -1))
    moving = stats.get("pending", 0) - stats.get("escalated", 0)
    return int(stats.get(recovery.ends_as, -1)) if moving == 0 else -1
