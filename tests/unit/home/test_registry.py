"""Entries of pipelines and services: whole, readable, dead ones told apart."""

import json
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.home import Home, registry
from pipo.home.leases import Lease
from pipo.home.registry import Entry, ServiceEntry

ENTRY = Entry(
    pipeline="signups",
    version=3,
    pid=42,
    host="here",
    address="127.0.0.1:4000",
    listen=None,
    ttl=None,
    state="running",
    status="active",
    started_at=1,
    runner="r",
    file="/w/signups.pipo",
    restarts=0,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.ensure()
    return home


def test_what_is_written_is_read(home: Home) -> None:
    registry.write(home, ENTRY)
    assert registry.read(home, "signups") == ENTRY
    assert registry.entries(home) == [ENTRY]
    content = json.loads((home.run / "signups.json").read_bytes())
    assert "ttl" not in content
    assert content["listen"] is None
    registry.remove(home, "signups")
    registry.remove(home, "signups")
    assert registry.entries(home) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pipeline": "x"}', "null", "\udcff"])
def test_an_unreadable_entry_is_skipped_with_a_warning(
    home: Home, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.write(home, ENTRY)
    (home.run / "bad.json").write_bytes(content.encode(errors="surrogateescape"))
    assert registry.entries(home) == [ENTRY]
    assert registry.read(home, "bad") is None
    assert "registry.skip" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": "3"},
        {"pid": None},
        {"host": []},
        {"address": 7},
        {"listen": "8790"},
        {"started_at": 10**30},
        {"detached": "no"},
        {"pipeline": "other"},
    ],
)
def test_an_entry_with_a_wrong_field_is_an_unreadable_one(
    home: Home, wrong: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Edge 444: an answer about all pipelines must not end at one of them."""
    registry.write(home, ENTRY)
    path = home.run / "signups.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    assert registry.read(home, "signups") is None
    assert registry.entries(home) == []
    assert "registry.skip" in caplog.text


def test_a_deep_nest_is_an_unreadable_entry(home: Home) -> None:
    (home.run / "deep.json").write_text("[" * 100_000)
    assert registry.entries(home) == []


def test_keys_of_a_later_version_are_ignored(home: Home) -> None:
    registry.write(home, ENTRY)
    path = home.run / "signups.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"new": 1}))
    assert registry.read(home, "signups") == ENTRY


def test_rests_of_a_write_are_no_entries(home: Home) -> None:
    (home.run / ".signups.json.1.ab.tmp").write_text("{")
    (home.run / "internal.token").write_text("x")
    assert registry.entries(home) == []


def test_a_service_without_its_lease_is_dead(home: Home) -> None:
    entry = ServiceEntry("checker", "here", 1, "here", "", "127.0.0.1:1", 5)
    registry.write_service(home, entry)
    assert registry.services(home) == []
    lease = Lease.acquire(registry.service_lease(home, "checker", "here"), clock=SystemClock())
    assert registry.services(home) == [entry]
    assert registry.services(home, "gateway") == []
    registry.remove_service(home, "checker", "here")
    assert registry.services(home) == []
    lease.release()
