from __future__ import annotations

from pathlib import Path

import pytest

from pipo.home import Home, registry
from pipo.home.directory import Directory, Entries
from pipo.home.registry import Entry


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


class StillClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def now_ms(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        return self.at

    def jitter(self, span_s: float) -> float:
        return 0.0


def entry(name: str, address: str = "127.0.0.1:1") -> Entry:
    return Entry(
        pipeline=name,
        version=1,
        pid=1,
        host="here",
        address=address,
        listen=None,
        ttl=None,
        state="running",
        status="active",
        started_at=1,
        runner="one",
        file="/w/x.pipo",
        restarts=0,
    )


def test_an_answer_is_at_most_half_a_second_old_or_younger_after_a_failure(home: Home) -> None:
    clock = StillClock()
    directory = Directory(home, clock)
    assert directory.entry("a") is None
    registry.write(home, entry("a", "127.0.0.1:1"))
    first = directory.entry("a")
    assert first is not None
    assert first.address == "127.0.0.1:1"
    registry.write(home, entry("a", "127.0.0.1:2"))
    assert directory.entry("a") is first
    directory.forget("a")
    second = directory.entry("a")
    assert second is not None
    assert second.address == "127.0.0.1:2"
    registry.remove(home, "a")
    assert directory.entry("a") is second
    clock.at = 0.5
    assert directory.entry("a") is None


def test_who_doubts_an_answer_is_told_what_is_so_now(home: Home) -> None:
    directory = Directory(home, StillClock())
    registry.write(home, entry("a"))
    first = directory.entry("a")
    directory.doubt("a")
    # The file is as it was, and is not read for that.
    assert directory.entry("a") is first
    registry.remove(home, "a")
    assert directory.entry("a") is first
    directory.doubt("a")
    assert directory.entry("a") is None
    directory.doubt("a")
    directory.doubt("nobody")


def test_an_unchanged_file_is_not_read_again(home: Home) -> None:
    clock = StillClock()
    directory = Directory(home, clock)
    registry.write(home, entry("a"))
    first = directory.entry("a")
    clock.at = 10
    assert directory.entry("a") is first


def test_a_half_written_entry_is_no_entry(home: Home) -> None:
    (home.run / "a.json").write_text('{"pipeline": "a", ')
    assert Directory(home, StillClock()).entry("a") is None


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "a.b", "a" * 300])
def test_what_is_no_name_touches_no_file(home: Home, name: str) -> None:
    directory = Directory(home, StillClock())
    assert directory.entry(name) is None
    assert not directory.exists(name)


def test_names_are_those_that_run_and_those_that_have_a_folder(home: Home) -> None:
    registry.write(home, entry("runs"))
    home.pipeline("rests").ensure()
    directory = Directory(home, StillClock())
    assert directory.names() == ["rests", "runs"]
    assert directory.exists("rests")
    assert directory.exists("runs")


def test_an_unknown_name_gets_a_way_on(home: Home) -> None:
    directory = Directory(home, StillClock())
    assert "pipo start FILE" in directory.unknown("x").hint
    home.pipeline("signups").ensure()
    assert directory.unknown("singups").hint == "did you mean signups?"
    assert directory.unknown("zzz").hint == "there are: signups"
    assert directory.unknown("zzz").message == "no pipeline named 'zzz'"


def test_only_what_changed_is_read_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(home: Home, name: str) -> Entry | None:
        read.append(name)
        return original(home, name)

    original = registry.read
    monkeypatch.setattr(registry, "read", noted)
    entries = Entries(home)
    assert entries() == []
    for name in ("b", "a"):
        registry.write(home, entry(name))
    assert entries() == entries() == [entry("a"), entry("b")]
    assert read == ["a", "b"]
    registry.write(home, entry("b", "127.0.0.1:2"))
    registry.remove(home, "a")
    assert entries() == [entry("b", "127.0.0.1:2")]
    assert read == ["a", "b", "b"]
    # Cut in half: it is told, and no other is lost; whole again, it is back.
    (home.run / "c.json").write_text('{"pipeline": "c')
    assert entries() == entries() == [entry("b", "127.0.0.1:2")]
    registry.write(home, entry("c"))
    assert entries() == [entry("b", "127.0.0.1:2"), entry("c")]
