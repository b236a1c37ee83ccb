"""Stand-ins: operations that answer from memory, a clock that is set by hand, a tiny gateway."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli.client import Connection
from tests.stack import free_ports


class Operations:
    """Keeps every request; answers what it was given, or raises it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def list_pipelines(self) -> pipo_pb2.ListPipelinesReply:
        found: pipo_pb2.ListPipelinesReply = await self._answer("list_pipelines", None)
        return found

    async def get_pipeline(self, name: str) -> pipo_pb2.PipelineInfo:
        found: pipo_pb2.PipelineInfo = await self._answer("get_pipeline", name)
        return found

    async def list_runners(self) -> pipo_pb2.ListRunnersReply:
        found: pipo_pb2.ListRunnersReply = await self._answer("list_runners", None)
        return found

    async def attach(self, request: pipo_pb2.AttachRequest) -> pipo_pb2.AttachReply:
        found: pipo_pb2.AttachReply = await self._answer("attach", request)
        return found

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        found: pipo_pb2.PipelineInfo = await self._answer("start", request)
        return found

    async def stop(self, request: pipo_pb2.StopRequest) -> pipo_pb2.StopReply:
        found: pipo_pb2.StopReply = await self._answer("stop", request)
        return found

    async def restart(self, request: pipo_pb2.RestartRequest) -> pipo_pb2.PipelineInfo:
        found: pipo_pb2.PipelineInfo = await self._answer("restart", request)
        return found

    async def pause(self, request: pipo_pb2.PauseRequest) -> pipo_pb2.PauseReply:
        found: pipo_pb2.PauseReply = await self._answer("pause", request)
        return found

    async def resume(self, request: pipo_pb2.ResumeRequest) -> pipo_pb2.ResumeReply:
        found: pipo_pb2.ResumeReply = await self._answer("resume", request)
        return found

    async def ack(self, request: pipo_pb2.AckRequest) -> pipo_pb2.AckReply:
        found: pipo_pb2.AckReply = await self._answer("ack", request)
        return found

    async def push(self, request: pipo_pb2.PushRequest) -> pipo_pb2.PushReply:
        found: pipo_pb2.PushReply = await self._answer("push", request)
        return found

    async def list_packets(self, request: pipo_pb2.ListPacketsRequest) -> pipo_pb2.ListPacketsReply:
        found: pipo_pb2.ListPacketsReply = await self._answer("list_packets", request)
        return found

    async def list_dead_letters(
        self, request: pipo_pb2.ListDeadLettersRequest
    ) -> pipo_pb2.ListPacketsReply:
        found: pipo_pb2.ListPacketsReply = await self._answer("list_dead_letters", request)
        return found

    async def replay(self, request: pipo_pb2.ReplayRequest) -> pipo_pb2.ReplayReply:
        found: pipo_pb2.ReplayReply = await self._answer("replay", request)
        return found

    async def purge(self, request: pipo_pb2.PurgeRequest) -> pipo_pb2.PurgeReply:
        found: pipo_pb2.PurgeReply = await self._answer("purge", request)
        return found

    async def rerun(self, request: pipo_pb2.RerunRequest) -> pipo_pb2.RerunReply:
        found: pipo_pb2.RerunReply = await self._answer("rerun", request)
        return found

    async def resolve(self, request: pipo_pb2.ResolveRequest) -> pipo_pb2.ResolveReply:
        found: pipo_pb2.ResolveReply = await self._answer("resolve", request)
        return found

    async def list_versions(
        self, request: pipo_pb2.ListVersionsRequest
    ) -> pipo_pb2.ListVersionsReply:
        found: pipo_pb2.ListVersionsReply = await self._answer("list_versions", request)
        return found

    async def diff(self, request: pipo_pb2.DiffRequest) -> pipo_pb2.DiffReply:
        found: pipo_pb2.DiffReply = await self._answer("diff", request)
        return found

    async def rollback(self, request: pipo_pb2.RollbackRequest) -> pipo_pb2.RollbackReply:
        found: pipo_pb2.RollbackReply = await self._answer("rollback", request)
        return found

    async def apply(self, request: pipo_pb2.ApplyRequest) -> pipo_pb2.ApplyReply:
        found: pipo_pb2.ApplyReply = await self._answer("apply", request)
        return found

    async def inspect(self, request: pipo_pb2.InspectRequest) -> packet_pb2.Trace:
        found: packet_pb2.Trace = await self._answer("inspect", request)
        return found

    async def list_events(self, request: pipo_pb2.ListEventsRequest) -> pipo_pb2.ListEventsReply:
        found: pipo_pb2.ListEventsReply = await self._answer("list_events", request)
        return found

    async def watch_events(
        self, request: pipo_pb2.ListEventsRequest
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        for reply in await self._answer("watch_events", request):
            yield reply

    async def logs(self, request: pipo_pb2.LogsRequest) -> pipo_pb2.LogsReply:
        found: pipo_pb2.LogsReply = await self._answer("logs", request)
        return found

    async def _answer(self, name: str, request: Any) -> Any:
        kept = (
            type(request).FromString(request.SerializeToString()) if _message(request) else request
        )
        self.asked.append((name, kept))
        found = self.answers[name]
        if isinstance(found, list) and name in ("list_events", "logs"):
            found = found.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


def _message(value: Any) -> bool:
    return hasattr(value, "SerializeToString")


def connected(operations: Operations, engine: str = "up") -> Callable[[Any], Any]:
    """What `connect` returns in a test."""

    @asynccontextmanager
    async def connect(settings: Any) -> AsyncIterator[Connection]:
        yield Connection(operations, engine)  # type: ignore[arg-type]

    return connect


class HandClock:
    """Time that stands until it is moved; no jitter."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic(self) -> float:
        return self.at_s

    def jitter(self, span_s: float) -> float:
        return 0.0


@contextmanager
def http_gateway(
    routes: Mapping[str, Any], seen: list[tuple[str, str, bytes, str]] | None = None
) -> Iterator[str]:
    """A server that answers `METHOD /path` from a table; yields its address.

    The port above, a gateway's gRPC, is free too: it is none that the kernel gives to others.

    An answer is a status and a body, or a function that returns them.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if seen is not None:
                token = self.headers.get("Authorization", "")
                seen.append((self.command, self.path, body, token))
            known = routes.get(f"{self.command} {self.path}", (404, {"error": "no route"}))
            status, found = known() if callable(known) else known
            raw = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = answer

        def log_message(self, *words: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", free_ports()), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
