"""A taken port is one error that names the holder and the flag (decision 31)."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pipo.errors import BadRequest, Conflict
from pipo.home import Home
from pipo_cli import ports
from tests.stack import free_ports
from tests.unit.cli.fakes import http_gateway


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def test_free_ports_pass(home: Home) -> None:
    ports.refuse_taken("127.0.0.1", free_ports(), home)


def test_another_program(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports()
    monkeypatch.setattr(ports, "ASK_TIMEOUT_S", 0.02)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(Conflict) as refused:
        ports.refuse_taken("127.0.0.1", port, home)
    assert refused.value.message.startswith(f"port {port} is taken by pid {os.getpid()} (")
    assert f"--listen {port + 10}" in refused.value.hint


def test_the_grpc_port_counts_too(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports()
    monkeypatch.setattr(ports, "ASK_TIMEOUT_S", 0.02)
    named = rf"port {port + 1} \(gRPC, the one above {port}\)"
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        pytest.raises(Conflict, match=named),
    ):
        ports.refuse_taken("127.0.0.1", port, home)


def test_a_gateway_is_named_with_its_home(home: Home) -> None:
    health = {"service": "gateway", "home": "/srv/pipo"}
    with http_gateway({"GET /healthz": (200, health)}) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(Conflict) as refused:
            ports.refuse_taken("127.0.0.1", port, home)
    assert refused.value.message == (
        f"port {port} is taken by the Pipo gateway of /srv/pipo (pid {os.getpid()})"
    )


def test_an_address_of_another_machine(home: Home) -> None:
    with pytest.raises(BadRequest, match=r"cannot listen on 192\.0\.2\.1"):
        ports.refuse_taken("192.0.2.1", free_ports(), home)


@pytest.mark.parametrize("listen", [0, 65535])
def test_a_port_without_one_above(home: Home, listen: int) -> None:
    with pytest.raises(BadRequest, match=f"cannot listen on port {listen}"):
        ports.refuse_taken("127.0.0.1", listen, home)
