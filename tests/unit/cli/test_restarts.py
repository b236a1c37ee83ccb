"""The wait before a service starts again."""

import pytest

from pipo.home.settings import Restart
from pipo_cli.restarts import Restarts

POLICY = Restart(backoff_s=1.0, max_backoff_s=30.0, stable_s=60.0)


def test_the_wait_doubles_up_to_the_limit() -> None:
    record, waits = Restarts(POLICY), []
    for _ in range(7):
        wait_s, record = record.after(ran_s=1.0, jitter=0.0)
        waits.append(wait_s)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_a_stable_run_begins_anew() -> None:
    _, record = Restarts(POLICY, in_a_row=4).after(ran_s=60.0, jitter=0.0)
    assert record.after(ran_s=1.0, jitter=0.0)[0] == 2


def test_jitter_only_lengthens() -> None:
    wait_s, _ = Restarts(POLICY, in_a_row=1).after(ran_s=0.0, jitter=1.0)
    assert wait_s == pytest.approx(2.4)


def test_a_very_long_row_does_not_overflow() -> None:
    assert Restarts(POLICY, in_a_row=100_000).after(0.0, 0.0)[0] == 30
