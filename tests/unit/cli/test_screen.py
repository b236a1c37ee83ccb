"""Printing beside the loop, and blocking calls beside the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pipo_cli import screen as screens
from pipo_cli.screen import Screen
from pipo_cli.threads import beside


def test_lines_come_out_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.err("one")
    screen.out("two ä")
    screen.err("three")
    screen.close(5)
    assert capfd.readouterr() == ("two ä\n", "one\nthree\n")


def test_a_reader_that_stands_still_loses_lines_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, written = threading.Event(), []

    def slowly(stream: str, line: str) -> None:
        go_on.wait(60)
        written.append(line)

    monkeypatch.setattr(screens, "_print", slowly)
    monkeypatch.setattr(screens, "WAITING_LINES_MAX", 4)
    screen = Screen()
    for n in range(20):
        screen.err(str(n))
    assert not screen.has_room
    go_on.set()
    screen.close(5)
    assert len(written) < 20
    assert any("lines were not shown" in line for line in written)


async def test_beside_returns_and_raises() -> None:
    assert await beside(lambda: 1 + 1, "sum") == 2
    with pytest.raises(ValueError, match="odd"):
        await beside(lambda: int("odd"), "parse")


async def test_a_cancelled_wait_leaves_the_thread_alone() -> None:
    go_on = threading.Event()
    waiting = asyncio.create_task(beside(lambda: go_on.wait(60), "wait"), name="wait")
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    go_on.set()
    assert waiting.cancelled()
