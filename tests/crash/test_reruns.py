"""SIGKILL around a rerun: each packet runs again once for a request, or not at all."""

from __future__ import annotations

import pytest

from tests.crash.dying import Dies, cases
from tests.packets import outcome, packet
from tests.stack import query

pytestmark = [pytest.mark.crash, pytest.mark.slow]

RERUN = ("rerun.before_commit", "rerun.after_commit")
COVERED = frozenset(RERUN)


def ended(dies: Dies, count: int) -> list[str]:
    """Packets that were delivered."""
    dies.mend()
    ids = []
    for n in range(count):
        end = outcome(dies.stack, "dies", {"n": n})
        assert end["state"] == "delivered", end
        ids.append(str(end["packet_id"]))
    return ids


@pytest.mark.seed("R038", "R061")
@cases("sqlite", points=RERUN)
def test_a_crash_at_a_rerun(dies: Dies, point: str) -> None:
    ids = ended(dies, 3)
    asked = {"from": "output", "ids": ids}
    assert dies.ask("rerun", **asked) == {}
    dies.after_the_crash()
    if point == RERUN[0]:
        # Nobody was told, and nothing stands: it is sent again.
        assert dies.stack.stats("dies")["delivered"] == 3
        assert dies.ask("rerun", **asked)["rerun"] == 3
    dies.delivered_once(ids, "packet.rerun", deliveries=2)


@pytest.mark.seed("R038", "R041", "R061")
@cases("file", points=(None,))
def test_a_kill_right_after_the_answer(dies: Dies, point: None) -> None:
    """What waits in a pause is not lost, and asked again while it moves it runs no second time."""
    ids = ended(dies, 3)
    assert dies.stack.pipo("pause", "dies").returncode == 0
    assert dies.ask("rerun", all=True, **{"from": "output"})["rerun"] == 3
    dies.kill()
    stats = dies.stack.stats("dies")
    assert (stats["pending"], stats["delivered"]) == (3, 0)
    assert dies.ask("rerun", ids=ids, **{"from": "output"}) == {}
    assert dies.ask("rerun", all=True, **{"from": "output"})["rerun"] == 0
    assert dies.stack.pipo("resume", "dies").returncode == 0
    dies.delivered_once(ids, "packet.rerun", deliveries=2)


@pytest.mark.seed("R030", "R038")
@cases(points=RERUN[1:], soak=("split",))
def test_a_crash_at_the_rerun_of_a_copy(dies: Dies, point: str) -> None:
    end = outcome(dies.stack, "dies", {"n": "x"})
    id = str(end["packet_id"])
    assert end["state"] == "delivered", end
    dies.ask("rerun", ids=[id], **{"from": "bad"})
    dies.after_the_crash()
    dies.stack.settle("dies")
    assert packet(dies.stack, "dies", id)["state"] == "delivered"
    assert dies.types(id)["packet.rerun"] == 1
    assert dies.written() == [f"{id}:bad", f"{id}:good"]
    again = "SELECT unit, count(*) FROM events WHERE type = 'output.written' GROUP BY unit"
    journal = dies.stack.home / "pipelines/dies/journal.db"
    assert dict(query(journal, again)) == {f"{id}:bad": 2, f"{id}:good": 1}
