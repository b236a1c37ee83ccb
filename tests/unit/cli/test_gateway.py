"""The gateway's HTTP side, and which gateway is asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import BadRequest, Finding, InvalidPipeline, Rejected, Unavailable
from pipo.home import Home, registry
from pipo.home.leases import Lease
from pipo.home.registry import ServiceEntry
from pipo_cli import client, gateway
from pipo_cli.gateway import Gateway
from pipo_cli.render import findings
from pipo_cli.settings import Settings
from tests.unit.cli.fakes import http_gateway

HEALTH = {"service": "gateway", "ok": True, "grpc_port": 4321}


def announce(home: Home, url: str, started_at: int = 1) -> Lease:
    """A gateway that is alive in the home, as this process."""
    home.ensure()
    id = f"g{started_at}"
    lease = Lease.acquire(registry.service_lease(home, "gateway", id), clock=SystemClock())
    address = url.removeprefix("http://")
    entry = ServiceEntry("gateway", id, os.getpid(), "here", "", address, started_at)
    registry.write_service(home, entry)
    return lease


def test_a_call_carries_json_and_the_token() -> None:
    seen: list[tuple[str, str, bytes, str]] = []
    with http_gateway({"POST /api/pipelines": (201, {"name": "x"})}, seen) as url:
        assert Gateway(url, "secret").call("POST", "/api/pipelines", {"file": "/x"}) == {
            "name": "x"
        }
    method, path, body, token = seen[0]
    assert (method, path, json.loads(body), token) == (
        *("POST", "/api/pipelines", {"file": "/x"}),
        "Bearer secret",
    )


def test_errors_come_back_as_what_they_are() -> None:
    finding = findings.as_json([Finding("P001", "error", "m", "h", 1, 2)])[0]
    routes = {
        "GET /a": (422, {"error": "bad", "code": "invalid_pipeline", "diagnostics": [finding]}),
        "GET /b": (422, {"error": "no", "code": "rejected", "packet_id": "01"}),
        "GET /c": (500, b"<html>"),
    }
    with http_gateway(routes) as url:
        asked = Gateway(url)
        with pytest.raises(InvalidPipeline, match="bad") as invalid:
            asked.call("GET", "/a")
        assert invalid.value.findings[0].code == "P001"
        with pytest.raises(Rejected) as rejected:
            asked.call("GET", "/b")
        assert rejected.value.packet_id == "01"
        with pytest.raises(Exception, match="the gateway answered 500"):
            asked.call("GET", "/c")


def test_nobody_there() -> None:
    with http_gateway({}) as url:
        pass
    assert Gateway(url).health() is None
    with pytest.raises(Unavailable, match="does not answer"):
        Gateway(url).call("GET", "/x")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://h:99999", "http://h:x"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadRequest, match="is not an address"):
        gateway.at(url)


def test_addresses_without_a_scheme_are_http() -> None:
    assert gateway.at("127.0.0.1:8787/").url == "http://127.0.0.1:8787"


def test_the_token_comes_from_the_file_or_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert gateway.token_for(home, None) == ""
    home.admin_token_file.write_text("admin\n")
    assert gateway.token_for(home, None) == "admin"
    (tmp_path / "other").write_text("other\n")
    assert gateway.token_for(home, str(tmp_path / "other")) == "other"
    with pytest.raises(BadRequest, match="cannot read the token file"):
        gateway.token_for(home, str(tmp_path / "none"))


def test_the_gateway_of_the_home_is_found(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with http_gateway({"GET /healthz": (200, HEALTH)}) as url:
        older = announce(home, "http://127.0.0.1:1", started_at=1)
        lease = announce(home, url, started_at=2)
        found = client.find_gateway(Settings(home_option=str(home.root)))
        assert found is not None
        assert found[0].url == url
        assert client.grpc_address(*found) == "127.0.0.1:4321"
        lease.release()
        older.release()
        assert client.find_gateway(Settings(home_option=str(home.root))) is None


def test_a_gateway_that_is_stopping_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with http_gateway({"GET /healthz": (503, {**HEALTH, "ok": False})}) as url:
        lease = announce(home, url)
        assert client.find_gateway(Settings(home_option=str(home.root))) is None
        lease.release()


def test_no_engine_asks_nobody(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with http_gateway({"GET /healthz": (200, HEALTH)}) as url:
        lease = announce(home, url)
        settings = Settings(home_option=str(home.root), no_engine=True)
        assert client.find_gateway(settings) is None
        lease.release()


def test_a_named_gateway_must_answer(tmp_path: Path) -> None:
    with http_gateway({"GET /healthz": (200, {"service": "other"})}) as url:
        settings = Settings(home_option=str(tmp_path), url=url)
        with pytest.raises(Unavailable, match=f"no gateway answers at {url}"):
            client.find_gateway(settings)


def test_without_word_of_it_the_grpc_port_is_the_next_one() -> None:
    assert client.grpc_address(Gateway("http://127.0.0.1:8787"), {}) == "127.0.0.1:8788"
    assert client.grpc_address(Gateway("http://[::1]:8787"), {}) == "[::1]:8788"
