"""The REST shape of each answer, shared by the gateway and the command line's `--json`.

Pure: a message in, a value for `pipo.rpc.to_json.dumps` out. Most are the message
as it is; a pipeline's entry keeps what only its process knows under `runner`.
"""

from __future__ import annotations

from typing import Any

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo.rpc.to_json import to_value

Answer = dict[str, Any]

# What the process itself knows; doors.md puts it under `runner`.
_OF_THE_RUNNER = (
    "last_seq",
    "latency",
    "inputs",
    "checkers",
    "notes",
    "paused_reason",
    "held",
    "awaiting_ack",
)


def engine(reply: pipo_pb2.Engine) -> Answer:
    """Where none runs, what only a running one has is null."""
    whole = to_value(reply)
    for name in ("engine_id", "started_at", "listen", "grpc_port"):
        whole[name] = whole[name] or None
    return whole


def engine_stopped(reply: pipo_pb2.StopEngineReply) -> Answer:
    return to_value(reply)


def runners(reply: pipo_pb2.ListRunnersReply) -> Answer:
    return to_value(reply)


def attached(reply: pipo_pb2.AttachReply) -> Answer:
    return to_value(reply)


def pipelines(reply: pipo_pb2.ListPipelinesReply) -> Answer:
    return {"pipelines": [entry(info) for info in reply.pipelines]}


def pipeline(info: pipo_pb2.PipelineInfo) -> Answer:
    """The entry, plus `runner`: null when it does not run."""
    whole = to_value(info)
    runner = None
    if info.status:
        runner = {"stats": whole["stats"], **{name: whole[name] for name in _OF_THE_RUNNER}}
    return {**entry(info), "runner": runner}


def entry(info: pipo_pb2.PipelineInfo) -> Answer:
    """A pipeline in a listing; `host_id` names the runner host that supervises it."""
    whole = to_value(info)
    for name in (*_OF_THE_RUNNER, "runner"):
        del whole[name]
    for name in ("file", "status", "host"):
        whole[name] = whole[name] or None
    whole["host_id"] = info.runner or None
    whole["checkers"] = info.checkers
    whole["notes"] = list(info.notes)
    return whole


def started(info: pipo_pb2.PipelineInfo) -> Answer:
    return entry(info)


def restarted(info: pipo_pb2.PipelineInfo) -> Answer:
    return entry(info)


def drained(reply: pipo_pb2.DrainReply) -> Answer:
    return to_value(reply)


def stopped(reply: pipo_pb2.StopReply) -> Answer:
    return to_value(reply)


def paused(reply: pipo_pb2.PauseReply) -> Answer:
    return to_value(reply)


def resumed(reply: pipo_pb2.ResumeReply) -> Answer:
    return to_value(reply)


def pushed(reply: pipo_pb2.PushReply) -> Answer:
    return to_value(reply)


def acked(reply: pipo_pb2.AckReply) -> Answer:
    return to_value(reply)


def dead_letters(reply: pipo_pb2.ListPacketsReply) -> Answer:
    return to_value(reply)


def replayed(reply: pipo_pb2.ReplayReply) -> Answer:
    return to_value(reply)


def purged(reply: pipo_pb2.PurgeReply) -> Answer:
    return to_value(reply)


def rerun(reply: pipo_pb2.RerunReply) -> Answer:
    return to_value(reply)


def resolved(reply: pipo_pb2.ResolveReply) -> Answer:
    return to_value(reply)


def versions(reply: pipo_pb2.ListVersionsReply) -> Answer:
    return to_value(reply)


def version(reply: pipo_pb2.VersionText) -> Answer:
    """The version's own keys, then its texts."""
    whole = to_value(reply)
    return {**whole.pop("version"), **whole}


def difference(reply: pipo_pb2.DiffReply) -> Answer:
    return to_value(reply)


def rolled_back(reply: pipo_pb2.RollbackReply) -> Answer:
    return to_value(reply)


def applied(reply: pipo_pb2.ApplyReply) -> Answer:
    return to_value(reply)


def packets(reply: pipo_pb2.ListPacketsReply) -> Answer:
    return to_value(reply)


def trace(reply: packet_pb2.Trace) -> Answer:
    return to_value(reply)


def event(one: packet_pb2.Event) -> Answer:
    """One journal event; `packet_id` is null for one of the pipeline itself."""
    return {**to_value(one), "packet_id": one.packet_id or None}


def events(reply: pipo_pb2.ListEventsReply, pipeline: str) -> Answer:
    """A page; `last_id` is what the next page follows."""
    whole = to_value(reply)
    whole["events"] = [event(one) for one in reply.events]
    return {**whole, "last_id": f"{pipeline}:{reply.last_seq}"}


def logs(reply: pipo_pb2.LogsReply) -> Answer:
    return to_value(reply)


def checked(reply: pipo_pb2.CheckReply) -> Answer:
    return to_value(reply)
