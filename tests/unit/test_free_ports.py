"""A port that a test was given is no other test's, whether or not anything listens there."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests import stack


def elsewhere(port: int) -> str:
    """What another process is told that asks for the port."""
    program = "import sys; from tests import stack; print(stack.reserve(int(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(port)],
        cwd=stack.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_it_is_kept_from_others_for_as_long_as_its_process_lives() -> None:
    port = stack.free_ports(2)
    assert elsewhere(port) == elsewhere(port + 1) == "False"
    assert not stack.reserve(port)
    # A process that has ended keeps nothing.
    for other in (n for n in stack.PORTS if n not in stack._OURS):
        if elsewhere(other) == "True":
            break
    assert elsewhere(other) == "True"


def test_it_is_free_now() -> None:
    port = stack.free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        stack._OURS.discard(port)
        assert not stack.reserve(port)
