"""A real HTTP receiver for tests: it records, keeps, and misbehaves as it is told.

Without a script it is a good receiver: it keeps (key, body) once for each
Idempotency-Key, counts what it kept as effects, and answers 200; a GET changes nothing. One with
`honours_keys` switched off keeps whatever comes. A script is a list
of replies for a path; the last one goes on for ever. It lives in the test's own
process, so that it survives the kill of whatever sends to it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Got:
    """One request as it arrived; `at` is the monotonic time at which its body was read."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    at: float
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def all(self, name: str) -> list[str]:
        """Every value of a header, by its name in any case."""
        return [value for found, value in self.headers if found.lower() == name.lower()]

    @property
    def key(self) -> str:
        """Its one Idempotency-Key."""
        (key,) = self.all("Idempotency-Key")
        return key

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What is answered after `delay_s`.

    `stores` keeps the request first. `pace_s` waits after each byte of the body. `drops`
    closes the connection: `before` any answer, or within the `body`.
    """

    status: int = 200
    body: bytes | str = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    stores: bool = False
    pace_s: float = 0.0
    drops: str = ""


Script = Reply | Callable[[Got], Reply]


class Receiver:
    """A context manager; `url` is where it listens. Safe to ask while requests come in."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[Got] = []
        self.kept: dict[str, bytes] = {}
        self.done: list[Got] = []
        """The requests that had an effect, in order."""
        self.honours_keys = True
        self.open_now = 0
        self.open_most = 0
        self.fallback: Script | None = None
        """What is answered where a path has no script."""
        self._scripts: dict[str, list[Script]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def script(self, path: str, *replies: Script) -> None:
        """From now on requests to a path are answered so, one after the other."""
        with self._lock:
            self._scripts[path] = list(replies)

    @property
    def effects(self) -> int:
        return len(self.done)

    def at(self, path: str) -> list[Got]:
        """What came to a path so far, in order."""
        with self._lock:
            return [one for one in self.got if one.path == path]

    def keys(self, path: str) -> list[str]:
        return [one.key for one in self.at(path)]

    def wait(self, seconds: float) -> None:
        """Waits, but no longer than this receiver lives."""
        self._closing.wait(seconds)

    def took(self, got: Got) -> Reply:
        """Records a request and picks its reply."""
        with self._lock:
            self.got.append(got)
            script = self._scripts.get(got.path)
            chosen: Script = self.fallback or Reply(stores=got.method != "GET")
            if script:
                chosen = script[0] if len(script) == 1 else script.pop(0)
        reply = chosen(got) if callable(chosen) else chosen
        if reply.stores:
            self._keep(got)
        return reply

    def entered(self, step: int) -> None:
        with self._lock:
            self.open_now += step
            self.open_most = max(self.open_most, self.open_now)

    def _keep(self, got: Got) -> None:
        keys = got.all("Idempotency-Key") or [""]
        with self._lock:
            if keys[0] not in self.kept or not keys[0] or not self.honours_keys:
                self.kept[keys[0]] = got.body
                self.done.append(got)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is no news."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None: ...

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            headers = list(self.headers.items())
            got = Got(
                self.command, self.path, headers, body, time.monotonic(), self.client_address[1]
            )
            receiver.entered(1)
            try:
                self._send(receiver.took(got))
            finally:
                receiver.entered(-1)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def _send(self, reply: Reply) -> None:
            receiver.wait(reply.delay_s)
            if reply.drops == "before":
                self.close_connection = True
                return
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            promised = len(body) + (1 if reply.drops == "body" else 0)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            if reply.pace_s:
                for n in range(len(body)):
                    self.wfile.write(body[n : n + 1])
                    receiver.wait(reply.pace_s)
            else:
                self.wfile.write(body)
            if reply.drops == "body":
                self.close_connection = True

    return Handler
