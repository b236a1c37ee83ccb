from __future__ import annotations

import pytest

from pipo.errors import Forbidden
from pipo_gateway.doors import OWNER, Doors, NoToken, Principal, is_loopback

READER = Principal("reader", "read", frozenset({"signups"}))
ADMIN = "admin-token"


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_names(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8787", "localhost", "[::1]:8787", "localhost:1", "[::1]", "localhost:"]
)
def test_on_loopback_without_tokens_loopback_hosts_are_the_owner(host: str) -> None:
    doors = Doors("127.0.0.1", [], ADMIN)
    assert not doors.guarded
    assert doors.admit({"Host": host}) is OWNER
    assert doors.admit({"Host": host, "Origin": "http://localhost:3000"}) is OWNER


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8787"},
        {"Host": "localhost", "Origin": "https://evil.example"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "localhost", "Origin": "http://["},
        {"Host": "localhost:evil.example"},
        {"Host": "localhost:80@evil.example"},
        {"Host": "[127.0.0.1]evil.example"},
        {"Host": "[::1]:evil.example"},
        {"Host": "[::1"},
    ],
)
def test_a_foreign_host_or_origin_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden, match="not this machine"):
        Doors("127.0.0.1", [], ADMIN).admit(headers)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.1.2.3"])
def test_bound_elsewhere_everything_needs_a_token(bind: str) -> None:
    doors = Doors(bind, [], ADMIN)
    with pytest.raises(NoToken, match="this needs a token"):
        doors.admit({"Host": "localhost"})
    with pytest.raises(NoToken):
        doors.admit_call([])
    assert doors.admit({"Authorization": f"bearer {ADMIN}"}).scope == "edit"
    assert doors.admit_call([("authorization", f"Bearer {ADMIN}")]).name == "admin"


def test_configured_tokens_guard_loopback_too() -> None:
    doors = Doors("127.0.0.1", [(READER, "r-token")], ADMIN)
    assert doors.admit({"Authorization": "Bearer r-token", "Host": "evil.example"}) is READER
    with pytest.raises(NoToken):
        doors.admit({"Host": "localhost"})


@pytest.mark.parametrize("shown", ["Bearer ", "Bearer nope", "Basic YTpi", "admin-token"])
def test_another_token_is_not_known(shown: str) -> None:
    with pytest.raises(NoToken):
        Doors("0.0.0.0", [], ADMIN).admit({"Authorization": shown})


def test_scopes_rise_and_pipelines_limit() -> None:
    READER.require("read", "signups")
    with pytest.raises(Forbidden, match="has scope read, and this needs operate"):
        READER.require("operate", "signups")
    with pytest.raises(Forbidden, match="is not for pipeline 'other'"):
        READER.require("read", "other")
    with pytest.raises(Forbidden, match="named pipelines only"):
        READER.require_all()
    Principal("x", "edit").require("operate", "anything")
