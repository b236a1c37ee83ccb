"""SIGKILL around a resolution: it is done once or not at all, and nothing runs twice."""

from __future__ import annotations

import pytest

from tests.crash.dying import Dies, cases
from tests.packets import packet
from tests.stack import wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

RESOLVE = ("resolve.before_commit", "resolve.after_commit")
COVERED = frozenset(RESOLVE)


@pytest.mark.seed("R044", "R046")
@cases("waiting", points=RESOLVE)
def test_a_crash_at_a_retry(dies: Dies, point: str) -> None:
    """Edge 295. What waits for someone outlives the crash, too."""
    ids = [dies.escalated(n) for n in range(2)]
    dies.mend()
    asked = {"ids": ids, "action": "retry"}
    assert dies.ask("resolve", **asked) == {}
    dies.after_the_crash()
    if point == RESOLVE[0]:
        assert [packet(dies.stack, "dies", id)["state"] for id in ids] == ["escalated"] * 2
        assert len(dies.ask("resolve", **asked)["resolved"]) == 2
    else:
        # Asked once more it changes nothing.
        assert dies.ask("resolve", **asked) == {}
    dies.delivered_once(ids, "packet.resolved")


@pytest.mark.seed("R044")
@cases(points=RESOLVE[1:], soak=("waiting",))
def test_a_crash_at_an_end(dies: Dies, point: str) -> None:
    one, two = (dies.escalated(n) for n in range(2))
    dies.ask("resolve", packet_id=one, action="dead_letter")
    dies.after_the_crash()
    assert dies.queue() == [one]
    assert packet(dies.stack, "dies", two)["state"] == "escalated"
    dies.mend()
    dies.ask("dlq/replay", ids=[one])
    dies.ask("resolve", packet_id=two, action="retry")
    wait_for(lambda: dies.stack.stats("dies").get("delivered") == 2, what=dies.stack.output)
    assert dies.written() == sorted((one, two))
