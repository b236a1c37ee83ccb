"""Which host takes up what has none."""

import random
from collections import Counter

import pytest

from pipo_runner.host.placement import FAILOVER_AFTER_MS, OTHERS_AFTER_MS, deal, due
from pipo_runner.host.policy import Action


def test_orphans_go_one_after_the_other_to_the_least_loaded() -> None:
    assert deal(["b", "a", "c"], {"y": 0, "x": 0}) == {"a": "x", "b": "y", "c": "x"}
    assert deal("abcd", {"busy": 3, "free": 0}) == dict.fromkeys("abc", "free") | {"d": "busy"}
    assert deal([], {"x": 1}) == {}
    assert deal("abc", {"alone": 9}) == dict.fromkeys("abc", "alone")


def test_whoever_comes_first_every_orphan_is_in_one_part_and_the_parts_are_even() -> None:
    """Hosts look in any order, and each takes its part before the next one looks."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(300):
        hosts = [f"h{n}" for n in range(chance.randint(1, 5))]
        loads = dict.fromkeys(hosts, 0)
        orphans = {f"p{n}" for n in range(chance.randint(0, 40))}
        total = len(orphans)
        chance.shuffle(hosts)
        for host in hosts:
            dealt = deal(orphans, loads)
            part = {name for name in orphans if dealt[name] == host}
            loads[host] += len(part)
            orphans -= part
        assert not orphans
        assert max(loads.values()) - min(loads.values()) <= 1
        assert sum(loads.values()) == total


def test_unequal_loads_are_evened_out() -> None:
    dealt = Counter(deal([f"p{n:03}" for n in range(100)], {"a": 60, "b": 0, "c": 20}).values())
    assert dealt == {"b": 60, "c": 40}


@pytest.mark.parametrize(
    ("action", "ours", "dealt", "after_ms"),
    [
        (Action.RESTART, True, False, 0),
        (Action.ADOPT, True, False, 0),
        (Action.ADOPT, False, True, 0),
        (Action.ADOPT, False, False, OTHERS_AFTER_MS),
        (Action.RESTART, False, True, FAILOVER_AFTER_MS),
        (Action.RESTART, False, False, FAILOVER_AFTER_MS + OTHERS_AFTER_MS),
    ],
)
def test_when_an_orphan_is_taken_up(action: Action, ours: bool, dealt: bool, after_ms: int) -> None:
    assert due(action, ours=ours, dealt=dealt, orphaned_ms=after_ms)
    assert not due(action, ours=ours, dealt=dealt, orphaned_ms=after_ms - 1) or after_ms == 0


def test_the_last_one_comes_soon_enough_for_the_ten_seconds() -> None:
    """With a look every 2 s at first, and every second from then on."""
    assert 2_000 + FAILOVER_AFTER_MS + OTHERS_AFTER_MS + 1_000 < 10_000
