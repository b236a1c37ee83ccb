"""One method per REST route: request → operation → answer, and nothing else."""

from __future__ import annotations

from typing import Any

from pipo.access import Access, answers
from pipo.errors import BadRequest
from pipo.rpc.stubs import pipo_pb2
from pipo.rpc.to_json import dumps
from pipo_gateway.engine import Engine
from pipo_gateway.events import EventPages
from pipo_gateway.ingress.answer import LINE_END, Answer
from pipo_gateway.metrics import Metrics
from pipo_gateway.rest.fields import required
from pipo_gateway.rest.router import Asked

TEXT = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Handlers:
    """What the routes do."""

    def __init__(self, access: Access, engine: Engine, metrics: Metrics) -> None:
        self._access = access
        self._engine = engine
        self._metrics = metrics
        self._events = EventPages(access)

    async def get_health(self, asked: Asked) -> Answer:
        facts = self._engine.health()
        return Answer(200 if facts["ok"] else 503, dumps(facts) + LINE_END)

    async def get_metrics(self, asked: Asked) -> Answer:
        return Answer(200, await self._metrics.text(asked.principal.sees), TEXT)

    async def get_engine(self, asked: Asked) -> Any:
        return answers.engine(await self._engine.message())

    async def stop_engine(self, asked: Asked) -> Any:
        asked.principal.require_all()
        return answers.engine_stopped(await self._engine.stop())

    async def list_runners(self, asked: Asked) -> Any:
        reply = await self._access.list_runners()
        shown = [info for info in reply.runners if asked.principal.sees(info.pipeline)]
        return answers.runners(pipo_pb2.ListRunnersReply(runners=shown))

    async def attach(self, asked: Asked) -> Any:
        name = asked.fields.get("pipeline", "")
        if name:
            asked.principal.require("operate", name)
        else:
            asked.principal.require_all()
        return answers.attached(await self._access.attach(pipo_pb2.AttachRequest(pipeline=name)))

    async def list_pipelines(self, asked: Asked) -> Any:
        reply = await self._access.list_pipelines()
        shown = [info for info in reply.pipelines if asked.principal.sees(info.name)]
        return answers.pipelines(pipo_pb2.ListPipelinesReply(pipelines=shown))

    async def start_file(self, asked: Asked) -> Any:
        fields = dict(asked.fields)
        file = fields.pop("file", "")
        if "source" in fields:
            # Whoever sends a text decides what runs, as with an apply.
            asked.principal.require("edit", fields.get("name"))
        else:
            asked.principal.require_all()
            required(asked.fields, "file")
        if file and not file.startswith("/"):
            raise BadRequest(f"file is {file!r}", hint="give the absolute path of the file")
        request = pipo_pb2.StartRequest(target=file, **fields)
        return answers.started(await self._access.start(request))

    async def get_pipeline(self, asked: Asked) -> Any:
        return answers.pipeline(await self._access.get_pipeline(asked.names["name"]))

    async def start(self, asked: Asked) -> Any:
        request = pipo_pb2.StartRequest(target=asked.names["name"], **asked.fields)
        return answers.started(await self._access.start_known(request))

    async def stop(self, asked: Asked) -> Any:
        request = pipo_pb2.StopRequest(
            pipeline=asked.names["name"], now=asked.fields.get("now", False)
        )
        return answers.stopped(await self._access.stop(request))

    async def drain(self, asked: Asked) -> Any:
        request = pipo_pb2.DrainRequest(pipeline=asked.names["name"])
        return answers.drained(await self._access.drain(request))

    async def restart(self, asked: Asked) -> Any:
        request = pipo_pb2.RestartRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.restarted(await self._access.restart(request))

    async def pause(self, asked: Asked) -> Any:
        request = pipo_pb2.PauseRequest(
            pipeline=asked.names["name"], reason=asked.fields.get("reason", "")
        )
        return answers.paused(await self._access.pause(request))

    async def resume(self, asked: Asked) -> Any:
        request = pipo_pb2.ResumeRequest(pipeline=asked.names["name"])
        return answers.resumed(await self._access.resume(request))

    async def push(self, asked: Asked) -> Any:
        request = pipo_pb2.PushRequest(
            pipeline=asked.names["name"],
            data=required(asked.fields, "data"),
            source=asked.fields.get("source", ""),
            input=asked.fields.get("input", ""),
        )
        return answers.pushed(await self._access.push(request))

    async def ack(self, asked: Asked) -> Any:
        request = pipo_pb2.AckRequest(
            pipeline=asked.names["name"],
            packet_id=required(asked.fields, "packet_id"),
            by=asked.fields.get("by", ""),
        )
        return answers.acked(await self._access.ack(request))

    async def list_dead_letters(self, asked: Asked) -> Any:
        request = pipo_pb2.ListDeadLettersRequest(
            pipeline=asked.names["name"], limit=_limit(asked), after=asked.fields.get("after", "")
        )
        return answers.dead_letters(await self._access.list_dead_letters(request))

    async def replay(self, asked: Asked) -> Any:
        request = pipo_pb2.ReplayRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.replayed(await self._access.replay(request))

    async def purge(self, asked: Asked) -> Any:
        request = pipo_pb2.PurgeRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.purged(await self._access.purge(request))

    async def rerun(self, asked: Asked) -> Any:
        _count(asked, "last")
        request = pipo_pb2.RerunRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.rerun(await self._access.rerun(request))

    async def resolve(self, asked: Asked) -> Any:
        request = pipo_pb2.ResolveRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.resolved(await self._access.resolve(request))

    async def list_versions(self, asked: Asked) -> Any:
        request = pipo_pb2.ListVersionsRequest(pipeline=asked.names["name"])
        return answers.versions(await self._access.list_versions(request))

    async def get_version(self, asked: Asked) -> Any:
        request = pipo_pb2.GetVersionRequest(
            pipeline=asked.names["name"], version=asked.names["version"]
        )
        return answers.version(await self._access.get_version(request))

    async def diff(self, asked: Asked) -> Any:
        request = pipo_pb2.DiffRequest(pipeline=asked.names["name"], **asked.fields)
        return answers.difference(await self._access.diff(request))

    async def rollback(self, asked: Asked) -> Any:
        request = pipo_pb2.RollbackRequest(
            pipeline=asked.names["name"],
            version=required(asked.fields, "version"),
            by=asked.fields.get("by", ""),
        )
        return answers.rolled_back(await self._access.rollback(request))

    async def apply(self, asked: Asked) -> Any:
        request = pipo_pb2.ApplyRequest(
            pipeline=asked.names["name"],
            source=required(asked.fields, "source"),
            files=asked.fields.get("files", {}),
            reason=asked.fields.get("reason", ""),
            by=asked.fields.get("by", ""),
        )
        return answers.applied(await self._access.apply(request))

    async def list_packets(self, asked: Asked) -> Any:
        request = pipo_pb2.ListPacketsRequest(
            pipeline=asked.names["name"],
            state=asked.fields.get("state", ""),
            limit=_limit(asked),
            after=asked.fields.get("after", ""),
        )
        return answers.packets(await self._access.list_packets(request))

    async def inspect(self, asked: Asked) -> Any:
        request = pipo_pb2.InspectRequest(pipeline=asked.names["name"], packet_id=asked.names["id"])
        return answers.trace(await self._access.inspect(request))

    async def list_events(self, asked: Asked) -> Any:
        after = asked.fields.get("after", "")
        return await self._events.of_one(asked.names["name"], after, _limit(asked))

    async def list_all_events(self, asked: Asked) -> Any:
        after = asked.fields.get("after", "")
        pipeline = asked.fields.get("pipeline")
        if pipeline is not None:
            asked.principal.require("read", pipeline)
            return await self._events.of_one(pipeline, after, _limit(asked))
        return await self._events.of_all(after, _limit(asked), asked.principal.sees)

    async def logs(self, asked: Asked) -> Any:
        request = pipo_pb2.LogsRequest(
            pipeline=asked.names["name"],
            tail=_limit(asked, "tail"),
            after=asked.fields.get("after"),
        )
        return answers.logs(await self._access.logs(request))

    async def check(self, asked: Asked) -> Any:
        request = pipo_pb2.CheckRequest(
            source=required(asked.fields, "source"), file=asked.fields.get("file", "")
        )
        return answers.checked(await self._access.check(request))


def _limit(asked: Asked, key: str = "limit") -> int:
    """A page's size; 0, which a message takes as its default, is refused when it was said."""
    value: int = asked.fields.get(key, 0)
    if key in asked.fields and not 1 <= value <= 1000:
        raise BadRequest(f"{key} is {value}", hint=f"{key} is a whole number from 1 to 1000")
    return value


def _count(asked: Asked, key: str) -> None:
    """Raises: BadRequest, for a count that was said and is none, which a message takes for absent."""
    value: int = asked.fields.get(key, 1)
    if not 1 <= value < 2**63:
        raise BadRequest(f"{key} is {value}", hint=f"{key} is a whole number from 1")
