"""The counters as the rows say them: the judge of the journal's own counting."""

from __future__ import annotations

from collections import Counter

from pipo.journal.rows import Rows

# Ends of copies are told by their packet's (edge 117).
EVENTS = """
SELECT type, count(*) FROM events
WHERE NOT (coalesce(unit, '') LIKE '%:%' AND type IN
    ('packet.delivered', 'packet.filtered', 'packet.dropped', 'packet.dead_lettered'))
GROUP BY type
"""


async def recount(rows: Rows) -> dict[str, int]:
    """now.* from the units, total.* from the events, all.* from both (nothing purged)."""
    states, events, checks = await rows.together(
        ("SELECT state, count(*) FROM units WHERE root IS NULL GROUP BY state", ()),
        (EVENTS, ()),
        ("SELECT count(*) FROM units WHERE root IS NULL AND state <> 'rejected'", ()),
    )
    made: Counter[str] = Counter()
    for state, count in states:
        made[f"now.{state}"] = count
    for event, count in events:
        made[f"total.{event}"] = count
    made["all.accepted"] = checks[0][0]
    made["all.delivered"] = made["now.delivered"]
    made["all.filtered"] = made["now.filtered"]
    return {name: count for name, count in made.items() if count}


def counted(counters: dict[str, int]) -> dict[str, int]:
    """The journal's counters, without zeros and without those of checks."""
    return {
        name: value
        for name, value in counters.items()
        if value and not name.startswith("total.check.")
    }
