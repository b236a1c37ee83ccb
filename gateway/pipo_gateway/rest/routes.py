"""Every route of the gateway but `/in`; one without a handler is known and not built yet."""

from __future__ import annotations

from pipo_gateway.rest.fields import Fields
from pipo_gateway.rest.handlers import Handlers
from pipo_gateway.rest.router import Route

START: Fields = {"listen": "port", "detached": "flag", "ttl": "text"}
RESTART: Fields = {"listen": "port", "ttl": "text"}
START_FILE: Fields = {"file": "text", **START, "name": "text", "source": "text", "files": "files"}
PUSH: Fields = {"data": "json", "source": "text", "input": "text"}
ACK: Fields = {"packet_id": "text", "by": "text"}
SELECTION: Fields = {"ids": "texts", "all": "flag", "by": "text"}
RERUN: Fields = {
    "from": "text",
    "ids": "texts",
    "last": "number",
    "since": "text",
    "all": "flag",
    "current": "flag",
    "dry": "flag",
    "by": "text",
}
RESOLVE: Fields = {
    "ids": "texts",
    "packet_id": "text",
    "action": "text",
    "by": "text",
    "by_kind": "text",
    "reason": "text",
}
PAGE: Fields = {"limit": "number", "after": "text"}
DIFF: Fields = {"from": "text", "to": "text"}
ROLLBACK: Fields = {"version": "version", "by": "text"}
APPLY: Fields = {"source": "text", "files": "files", "reason": "text", "by": "text"}
ONE = "/api/pipelines/{name}"


def routes(do: Handlers) -> list[Route]:
    """The table."""
    return [
        Route("GET", "/healthz", "health", handler=do.get_health, open=True),
        Route("GET", "/metrics", "metrics", handler=do.get_metrics),
        Route("GET", "/api/engine", "engine", handler=do.get_engine),
        Route("POST", "/api/engine/stop", "engine stop", "operate", {}, do.stop_engine, 202),
        Route("GET", "/api/runners", "runners", handler=do.list_runners),
        Route("POST", "/api/runners/attach", "attach", "operate", {"pipeline": "text"}, do.attach),
        Route("GET", "/api/pipelines", "list", handler=do.list_pipelines),
        Route(
            "POST",
            "/api/pipelines",
            "start",
            scope="operate",
            fields=START_FILE,
            handler=do.start_file,
            status=201,
        ),
        Route("GET", ONE, "get", handler=do.get_pipeline),
        Route("POST", f"{ONE}/start", "start", "operate", START, do.start),
        Route("POST", f"{ONE}/stop", "stop", "operate", {"now": "flag"}, do.stop),
        Route("POST", f"{ONE}/drain", "drain", "operate", {}, do.drain),
        Route("POST", f"{ONE}/restart", "restart", "operate", RESTART, do.restart),
        Route("POST", f"{ONE}/pause", "pause", "operate", {"reason": "text"}, do.pause),
        Route("POST", f"{ONE}/resume", "resume", "operate", {}, do.resume),
        Route("POST", f"{ONE}/push", "push", "operate", PUSH, do.push),
        Route("POST", f"{ONE}/ack", "ack", "operate", ACK, do.ack),
        Route("GET", f"{ONE}/dlq", "dlq", fields=PAGE, handler=do.list_dead_letters),
        Route("POST", f"{ONE}/dlq/replay", "dlq replay", "operate", SELECTION, do.replay),
        Route("POST", f"{ONE}/dlq/purge", "dlq purge", "operate", SELECTION, do.purge),
        Route("POST", f"{ONE}/rerun", "rerun", "operate", RERUN, do.rerun),
        Route("POST", f"{ONE}/resolve", "resolve", "operate", RESOLVE, do.resolve),
        Route(
            "GET",
            f"{ONE}/packets",
            "packets",
            fields={"state": "text", **PAGE},
            handler=do.list_packets,
        ),
        Route("GET", f"{ONE}/versions", "versions", handler=do.list_versions),
        Route("GET", f"{ONE}/versions/{{version}}", "versions", handler=do.get_version),
        Route("GET", f"{ONE}/diff", "diff", fields=DIFF, handler=do.diff),
        Route("POST", f"{ONE}/rollback", "rollback", "edit", ROLLBACK, do.rollback),
        Route("POST", f"{ONE}/apply", "apply", "edit", APPLY, do.apply),
        Route("GET", f"{ONE}/packets/{{id}}", "inspect", handler=do.inspect),
        Route("GET", f"{ONE}/events", "events", fields=PAGE, handler=do.list_events),
        Route(
            "GET",
            f"{ONE}/logs",
            "logs",
            fields={"tail": "number", "after": "number"},
            handler=do.logs,
        ),
        Route(
            "POST",
            "/api/check",
            "check",
            fields={"source": "text", "file": "text"},
            handler=do.check,
        ),
        Route(
            "GET",
            "/api/events",
            "events",
            fields={"pipeline": "text", **PAGE},
            handler=do.list_all_events,
        ),
        *_not_built(),
    ]


def _not_built() -> list[Route]:
    edits = ("proposals", "proposals/{id}/apply", "proposals/{id}/reject")
    reads = ("graph", "activity", "proposals")
    return [
        *(Route("POST", f"{ONE}/{path}", _words(path), "edit") for path in edits),
        *(Route("GET", f"{ONE}/{path}", _words(path)) for path in reads),
        Route("GET", "/api/agent-budget", "agent-budget"),
        Route("GET", "/api/bots", "bots"),
        Route("GET", "/events", "the event stream"),
        Route("GET", "/mcp", "mcp"),
        Route("POST", "/mcp", "mcp", "edit"),
        Route("GET", "/ui", "the dashboard"),
    ]


def _words(path: str) -> str:
    """`dlq/replay` → `dlq replay`; a name in braces is left out."""
    return " ".join(part for part in path.split("/") if not part.startswith("{"))
