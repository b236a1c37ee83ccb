"""The rate of the last minute."""

from __future__ import annotations

from pipo_runner.pipeline.flow.rates import MinuteRate


def test_only_the_last_sixty_seconds_count() -> None:
    rate = MinuteRate()
    for second in range(100):
        rate.add(2, second + 0.5)
    assert rate.total(99.7) == 120
    assert rate.total(99.7 + 30) == 60
    assert rate.total(99.7 + 600) == 0
