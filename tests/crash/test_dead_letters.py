"""SIGKILL around a replay and a purge: each is done once or not at all, and nothing runs twice."""

from __future__ import annotations

import pytest

from tests.crash.dying import Dies, cases
from tests.packets import inspect
from tests.stack import wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

REPLAY = ("dlq.before_replay_commit", "dlq.after_replay_commit")
PURGE = ("dlq.before_purge_commit", "dlq.after_purge_commit")
COVERED = frozenset((*REPLAY, *PURGE))
# Points that a replayed packet passes on its way, the second time each.
ON_THE_WAY = ("output.before_write:2", "output.after_write:2", "written.after_commit:2")


@pytest.mark.seed("O005", "R025", "R061")
@cases("file", points=REPLAY, soak=("sqlite",))
def test_a_crash_at_a_replay(dies: Dies, point: str) -> None:
    ids = [dies.dead(n) for n in range(3)]
    dies.mend()
    assert dies.ask("dlq/replay", ids=ids) == {}
    dies.after_the_crash()
    if point == REPLAY[0]:
        # Nobody was told, and nothing stands: it is sent again.
        assert dies.queue() == ids[::-1]
        assert dies.ask("dlq/replay", ids=ids)["replayed"] == 3
    else:
        assert dies.ask("dlq/replay", ids=ids) == {}
    dies.delivered_once(ids)


@pytest.mark.seed("O005", "R025", "R061")
@cases("sqlite", points=ON_THE_WAY, soak=("file",))
def test_a_crash_of_a_replayed_packet_on_its_way(dies: Dies, point: str) -> None:
    # The only packet, so that its second write is that of the replay.
    id = dies.dead(1)
    dies.mend()
    dies.ask("dlq/replay", all=True)
    dies.after_the_crash()
    dies.delivered_once([id])


@pytest.mark.seed("R025")
@cases("file", points=(None,))
def test_a_kill_right_after_the_answer(dies: Dies, point: None) -> None:
    """Edge 264. What waits in a pause is not lost either, nor written from a mark on."""
    ids = [dies.dead(n) for n in range(3)]
    dies.mend()
    assert dies.stack.pipo("pause", "dies").returncode == 0
    assert dies.ask("dlq/replay", all=True)["replayed"] == 3
    dies.kill()
    assert dies.stack.stats("dies")["pending"] == 3
    assert dies.stack.pipo("resume", "dies").returncode == 0
    dies.delivered_once(ids)


@pytest.mark.seed("R023", "R025")
@cases("split", points=REPLAY)
def test_a_crash_at_the_replay_of_a_copy(dies: Dies, point: str) -> None:
    id = dies.dead(1)
    dies.ask("dlq/replay", ids=[id])
    dies.after_the_crash()
    if point == REPLAY[0]:
        assert dies.ask("dlq/replay", ids=[id])["packets"] == [
            {"packet_id": id, "units": [{"id": f"{id}:bad", "node": "bad"}]}
        ]
    # Its cause stands: the copy dies again, and the packet with it.
    wait_for(lambda: dies.queue() == [id], what=dies.stack.output)
    assert dies.types(id)["packet.dead_lettered"] == 2
    assert dies.types(id)["dlq.replayed"] == 1
    assert dies.written() == [f"{id}:good"]


@pytest.mark.seed("R027", "R028")
@cases("split", points=PURGE)
def test_a_crash_at_a_purge(dies: Dies, point: str) -> None:
    ids = [dies.dead(n) for n in range(3)]
    assert dies.ask("dlq/purge", ids=ids[:2]) == {}
    dies.after_the_crash()
    if point == PURGE[0]:
        assert dies.queue() == ids[::-1]
        assert dies.ask("dlq/purge", ids=ids[:2])["purged"] == 2
    assert dies.queue() == [ids[2]]
    for id in ids[:2]:
        assert inspect(dies.stack, "dies", id)["packet"] is None
        assert dies.types(id) == {"dlq.purged": 1}
