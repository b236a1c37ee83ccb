"""Runs a module's import, to say whether it works; for whoever may run the author's code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from pipo.functions.code import Code
from pipo.functions.helper import wire
from pipo.functions.launching import NotStarted, ended_how, environment, launch

IMPORT_TIMEOUT_S: Final = 10.0
START_TIMEOUT_S: Final = 30.0
_FAULT_CHARS: Final = 500


def import_fault(code: Code, *, timeout_s: float = IMPORT_TIMEOUT_S) -> str:
    """Why the module does not import, with its line; empty when it does.

    Runs the author's code in a helper, with its memory limit, and ends it at the timeout.
    Blocks its thread.
    """
    name = PurePosixPath(code.main).name
    try:
        helper = launch(environment(os.environ), result_limit=0, prints=False)
    except NotStarted as error:
        return str(error)
    try:
        helper.control.settimeout(START_TIMEOUT_S)
        _answer(helper.control)
        helper.control.settimeout(timeout_s)
        helper.control.sendall(wire.frame(wire.LOAD, b"", code.as_json()))
        return str(_answer(helper.control).get("text", ""))[:_FAULT_CHARS]
    except TimeoutError:
        return f"{name} does not finish importing within {timeout_s:g} s"
    except (OSError, ValueError):
        with suppress(subprocess.TimeoutExpired):
            how = ended_how(helper.process.wait(1.0))
            return f"{name} ends the process that imports it ({how})"
        return f"{name} closes the pipe of the process that imports it"
    finally:
        helper.kill()
        helper.process.wait()
        helper.close()


def _answer(peer: socket.socket) -> dict[str, Any]:
    """The head of the next frame. Raises: OSError, ValueError."""
    kind, head, _ = wire.HEADER.unpack(_read(peer, wire.HEADER.size))
    if kind not in (wire.READY, wire.ANSWER, wire.SPENT) or head > wire.HEAD_BYTES_LIMIT:
        raise ValueError("no frame of ours")
    found: dict[str, Any] = json.loads(_read(peer, head)) if head else {}
    return found


def _read(peer: socket.socket, count: int) -> bytes:
    raw = b""
    while len(raw) < count:
        got = peer.recv(count - len(raw))
        if not got:
            raise ConnectionError("the other side is gone")
        raw += got
    return raw
