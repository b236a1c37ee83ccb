"""The health check of the containers."""

from __future__ import annotations

import importlib.util
import socket
import threading
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "deploy" / "image" / "health.py"


@pytest.fixture(scope="module")
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_image_health", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("command_line", "environ", "port"),
    [
        (b"/opt/pipo/bin/python3\0/opt/pipo/bin/pipo-gateway\0", {}, 8787),
        (b"/opt/pipo/bin/python3\0/opt/pipo/bin/pipo-gateway\0", {"PIPO_LISTEN": "9000"}, 9000),
        (b"python3\0/opt/pipo/bin/pipo-runner\0--home\0/data\0", {"PIPO_LISTEN": "9000"}, 8782),
        (b"python3\0/opt/pipo/bin/pipo-checker\0", {}, 8783),
        (b"sh\0-c\0sleep 1\0", {}, None),
        (b"", {}, None),
    ],
)
def test_the_port_follows_from_the_service_that_is_pid_1(
    health: ModuleType, command_line: bytes, environ: dict[str, str], port: int | None
) -> None:
    assert health.port_of(command_line, environ) == port


@pytest.mark.parametrize(
    "line", ["HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable", ""], ids=["up", "down", "mute"]
)
def test_it_reads_the_status_line(health: ModuleType, line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(f"{line}\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        found = health.status_line(server.getsockname()[1])
        thread.join(5)
    assert found == line


def test_a_port_where_nobody_listens_is_an_error(health: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        health.status_line(port)
