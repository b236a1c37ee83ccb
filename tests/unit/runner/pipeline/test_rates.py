"""The rate of the last minute."""

from __future__ import annotations

from pipo_runner.pipeline.rates import MinuteRate


def test_only_the_last_sixty_seconds_count() -> None:
    rate = MinuteRate()
    for second in range(100):
        rate.add(2, second * 1000)
    assert rate.total(99_000) == 120
    assert rate.total(99_000 + 30_000) == 60
    assert rate.total(99_000 + 600_000) == 0
