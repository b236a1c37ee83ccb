"""`pipo engine`, `pipo runners` and `pipo attach` as text."""

from __future__ import annotations

from collections.abc import Sequence

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.tables import Column, one_line, table
from pipo_cli.render.times import NOTHING, age, duration, stamp

RUNNERS = (
    Column("PIPELINE"),
    Column("STATE"),
    Column("PID", "right"),
    Column("HOST"),
    Column("RUNNER"),
    Column("STARTED"),
)


def started(engine: pipo_pb2.Engine, *, already: bool) -> list[str]:
    """The answer of `pipo engine start`."""
    if already:
        return [f"the engine already runs: {_where(engine.listen)}"]
    until = [f"it ends {stamp(engine.ttl_expires_at)} (ttl)"] if _ends(engine) else []
    return [started_at(engine.listen), *until]


def started_at(port: int) -> str:
    """What is said once an engine came up, whichever command brought it up."""
    return f"started the engine: {_where(port)}"


def stopped(reply: pipo_pb2.StopEngineReply, home: str, *, ended: bool) -> list[str]:
    """The answer of `pipo engine stop`."""
    if not reply.stopped:
        said = [f"no engine runs for {home}"]
    elif ended:
        said = ["stopped the engine"]
        if reply.draining:
            names = ", ".join(reply.draining)
            said.append(f"stopped with it: {names}; `pipo start NAME` starts one again")
    else:
        whom = ", ".join(reply.draining) or "its services"
        said = [f"the engine still waits for {whom}; it ends after that"]
    if reply.detached:
        said.append(f"detached, and left running: {', '.join(reply.detached)}")
    return said


def status(engine: pipo_pb2.Engine, now_ms: int) -> list[str]:
    """The answer of `pipo engine status`."""
    facts = [("engine", _word(engine)), ("home", one_line(engine.home))]
    if engine.started_at:
        facts.append(("started", age(now_ms - engine.started_at)))
    if engine.listen:
        facts.append(("listens", _where(engine.listen)))
    facts.append(("pipelines", str(engine.pipelines)))
    if engine.runners or engine.checkers:
        facts.append(
            ("services", f"{_some(engine.runners, 'runner')}, {_some(engine.checkers, 'checker')}")
        )
    if _ends(engine):
        left = max(0, engine.ttl_expires_at - now_ms)
        facts.append(("ends", f"in {duration(left)}, {stamp(engine.ttl_expires_at)} (ttl)"))
    if engine.idle and engine.engine_id:
        facts.append(
            ("idle", f"it ends itself once nothing ran for {duration(engine.idle_s * 1000)}")
        )
    label = max(len(name) for name, _ in facts)
    return [f"{name:<{label}}  {value}" for name, value in facts]


def runners(reply: pipo_pb2.ListRunnersReply, now_ms: int) -> list[str]:
    """The answer of `pipo runners` (edge 401)."""
    if not reply.runners:
        return ["no runners"]
    rows = [_row(one, now_ms) for one in reply.runners]
    return [*table(RUNNERS, rows), *_hints(reply.runners)]


def attached(reply: pipo_pb2.AttachReply) -> list[str]:
    """The answer of `pipo attach`."""
    if not reply.runners:
        return ["nothing to attach: no pipeline runs"]
    said = []
    for one in reply.runners:
        pid = f" (pid {one.pid})" if one.HasField("pid") else ""
        if one.pipeline in reply.attached:
            said.append(f"attached {one.pipeline}{pid}")
        else:
            # An engine that came up for this has perhaps taken it over by itself.
            said.append(f"{one.pipeline} is {one.state}{pid}")
    return [*said, *_hints(reply.runners)]


def _row(one: pipo_pb2.RunnerInfo, now_ms: int) -> list[str]:
    return [
        one.pipeline,
        one.state,
        str(one.pid) if one.HasField("pid") else NOTHING,
        one.host or NOTHING,
        one.host_id or NOTHING,
        age(now_ms - one.started_at) if one.HasField("started_at") else NOTHING,
    ]


def _hints(runners: Sequence[pipo_pb2.RunnerInfo]) -> list[str]:
    return [f"  hint: {one.pipeline}: {one.hint}" for one in runners if one.hint]


def _word(engine: pipo_pb2.Engine) -> str:
    if not engine.engine_id:
        return "not running"
    if engine.stopping:
        return f"{engine.engine_id}, stopping"
    return f"{engine.engine_id}, {'ready' if engine.ready else 'not ready'}"


def _where(port: int) -> str:
    """gRPC is always the one above HTTP."""
    return f"port {port}, gRPC {port + 1}"


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _ends(engine: pipo_pb2.Engine) -> bool:
    return engine.HasField("ttl_expires_at")
