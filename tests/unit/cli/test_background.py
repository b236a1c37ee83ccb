"""Bringing the background engine up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, engine
from pipo.home.config import Config
from pipo.home.leases import Lease
from pipo_cli import background

CLOCK = SystemClock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def speaks(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """The stack is a shell that says `words` on the starter's pipe."""
    left = iter(programs)
    monkeypatch.setattr(
        background,
        "_command",
        lambda home, fd, config: ["sh", "-c", next(left).replace("PIPE", f"/dev/fd/{fd}")],
    )


def line(**words: str) -> str:
    return f"echo '{json.dumps(words)}' > PIPE"


def test_it_answers_with_the_address(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(url="http://127.0.0.1:1"))
    assert background.bring_up(home, Config()) == "http://127.0.0.1:1"


def test_its_refusal_comes_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(error="port 1 is taken", hint="move", code="conflict"))
    with pytest.raises(Conflict, match="port 1 is taken") as refused:
        background.bring_up(home, Config())
    assert refused.value.hint == "move"


def test_a_stack_that_says_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, "echo broken; exit 1")
    with pytest.raises(Unavailable, match="did not come up") as refused:
        background.bring_up(home, Config())
    log = home.service_logs / "engine.log"
    assert str(log) in refused.value.hint
    assert log.read_text() == "broken\n"


def test_a_stack_that_somebody_else_starts_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOOK_EVERY_S", 0.001)
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    answers = iter([False, False, True])
    assert background.ensure(home, Config(), answers=lambda: next(answers), clock=CLOCK) is None
    lease.release()


def test_a_stack_that_never_answers(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(background, "SPARE_S", 0.01)
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    with pytest.raises(Unavailable, match="its gateway does not answer"):
        background.ensure(home, Config(start_timeout_s=0), answers=lambda: False, clock=CLOCK)
    lease.release()


def test_a_taken_port_is_not_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(error="port 1 is taken", hint="", code="conflict"))
    with pytest.raises(Conflict, match="port 1 is taken"):
        background.ensure(home, Config(), answers=lambda: False, clock=CLOCK)


def test_what_the_starter_decided_goes_along(home: Home) -> None:
    words = background._command(home, 7, Config(listen=9000, ttl_s=2.5))
    assert words[-6:] == ["--ready-fd", "7", "--listen", "9000", "--ttl-s", "2.5"]
    assert "--ttl-s" not in background._command(home, 7, Config())
