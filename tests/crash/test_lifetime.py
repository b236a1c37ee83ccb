"""SIGKILL on the way out of a lifetime: it drains again at once, and delivers what was in flight once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.crash.traps import trap, trapped
from tests.packets import push
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

COVERED = (
    "lifetime.before_commit",
    "lifetime.after_commit",
    "draining.after_commit",
    "ended.before_commit",
    "ended.after_commit",
)
# `uptime` begins anew with each run: only what the journal keeps ends the second one. The packet is in
# flight while it drains.
TEXT = """pipo: 1
name: NAME
lifetime: { LIMIT, drain_timeout: 1m }
input: { via: http, with: { path: /in } }
output: { from: input, to: file, with: { path: ./NAME.jsonl } }
delivered: { check: file_exists, with: { path: ./seen-NAME }, within: 5m }
"""
LIMITS = {
    "t": ("ttl: 2s", "ttl"),
    "m": ("max_packets: 1", "max_packets"),
    "u": ("until: stats.uptime >= 2 && stats.accepted == 1", "until"),
}
# Each point once, and each limit; all of both in `make soak`.
SHOWN = {
    ("m", "lifetime.before_commit"),
    ("u", "lifetime.after_commit"),
    ("t", "draining.after_commit"),
    ("t", "ended.before_commit"),
    ("t", "ended.after_commit"),
}
CASES = [
    pytest.param(
        limit,
        point,
        marks=[] if (limit, point) in SHOWN else [pytest.mark.soak],
        id=f"{limit}-{point}",
    )
    for limit in LIMITS
    for point in COVERED
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    yield from trapped(tmp_path_factory.mktemp("lifetimes"), "backoff: 50ms, max_backoff: 50ms")


def types(stack: Stack, name: str) -> list[str]:
    rows = query(
        journal_of(stack.home, name),
        "SELECT type FROM events WHERE type LIKE 'pipeline.%' ORDER BY seq",
    )
    return [row[0] for row in rows]


def state(stack: Stack, name: str) -> str:
    return str(stack.get(f"/api/pipelines/{name}")["state"])


def told_again(point: str) -> bool:
    """Whether the first run's word that its lifetime is over was on disk, and not its last."""
    return point not in ("lifetime.before_commit", "ended.after_commit")


@pytest.mark.seed("L006", "L020")
@pytest.mark.parametrize(("limit", "point"), CASES)
def test_a_kill_on_the_way_out_of_a_lifetime(stack: Stack, limit: str, point: str) -> None:
    """Edge 314, 319."""
    name = f"{limit}{COVERED.index(point)}"
    text, reason = LIMITS[limit]
    sprung = trap(stack, name, point)
    path = stack.write(f"{name}.pipo", TEXT.replace("NAME", name).replace("LIMIT", text))
    body = json.dumps({"file": str(path)}).encode()
    assert stack.request("/api/pipelines", body)[0] == 201
    # A kill before the answer leaves its sender in doubt; the packet is there.
    with suppress(AssertionError):
        push(stack, name, {"n": 1})
    ((id,),) = query(journal_of(stack.home, name), "SELECT id FROM units")
    if point.startswith("ended"):
        # The drain comes to its end, and dies there.
        (stack.workspace / f"seen-{name}").touch()
    wait_for(lambda: not sprung.exists(), what=lambda: f"{point} springs\n{stack.output()}")
    if point == "ended.after_commit":
        # Its last word is on disk: nobody brings it up again.
        wait_for(lambda: state(stack, name) == "completed", deadline_s=120)
        assert types(stack, name).count("pipeline.started") == 1
    else:
        wait_for(lambda: types(stack, name).count("pipeline.started") == 2, deadline_s=120)
        told = 0 if point == "lifetime.before_commit" else 1
        wait_for(lambda: types(stack, name).count("pipeline.lifetime") == told + 1, deadline_s=120)
        (stack.workspace / f"seen-{name}").touch()
        wait_for(lambda: state(stack, name) == "completed", deadline_s=120, what=stack.output)
    found = types(stack, name)
    assert found[-1] == "pipeline.completed"
    assert found.count("pipeline.completed") == 1
    details = query(
        journal_of(stack.home, name),
        "SELECT DISTINCT detail ->> '$.reason' FROM events WHERE type = 'pipeline.lifetime'",
    )
    assert details == [[reason]]
    if limit == "u" and told_again(point):
        # At once, and not for a condition that held again two seconds later.
        ((uptime,),) = query(
            journal_of(stack.home, name),
            "SELECT detail ->> '$.stats.uptime' FROM events WHERE type = 'pipeline.lifetime' "
            "ORDER BY seq DESC LIMIT 1",
        )
        assert uptime < 2
    assert [one["packet_id"] for one in lines(stack.workspace / f"{name}.jsonl")] == [id]
    delivered = query(
        journal_of(stack.home, name),
        "SELECT unit FROM events WHERE type = 'packet.delivered'",
    )
    assert delivered == [[id]]
