"""`pipo status`: the table of pipelines, and one pipeline with its latency (edge 395, 396)."""

from __future__ import annotations

from collections.abc import Sequence

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.tables import Column, one_line, table
from pipo_cli.render.times import NOTHING, age, count, duration, stamp, uptime
from pipo_cli.render.ways import ways

WARNING = "⚠"
MIB = 1024 * 1024

COLUMNS = (
    Column("PIPELINE"),
    Column("STATE"),
    Column("VER"),
    Column("UPTIME"),
    Column("IN/MIN", "right"),
    Column("PENDING", "right"),
    Column("DELIVERED", "right"),
    Column("DLQ", "right"),
    Column("LAST DELIVERY"),
)
LATENCY = (
    Column("NODE"),
    Column("COUNT", "right"),
    Column("P50", "right"),
    Column("P95", "right"),
    Column("MAX", "right"),
)


def overview(pipelines: Sequence[pipo_pb2.PipelineInfo], now_ms: int) -> list[str]:
    """One row per pipeline; behind it its warnings, and why it does not run where that failed."""
    return _rows(pipelines, now_ms, [_warnings(p) for p in pipelines])


def details(pipeline: pipo_pb2.PipelineInfo, now_ms: int) -> list[str]:
    """The pipeline's row, where it comes from and runs, how packets get in, what it feeds, how long
    it may last, its oldest packet, its latency."""
    facts = [("file", one_line(pipeline.file)), ("process", _process(pipeline))]
    given = [{"via": i.via, "address": i.address} for i in pipeline.inputs]
    # `push --input` asks for the name, where there are several.
    named = [f"{i.name}: " if len(pipeline.inputs) > 1 else "" for i in pipeline.inputs]
    facts += [
        ("input", one_line(name + way.shown()))
        for name, way in zip(named, ways(given), strict=True)
    ]
    facts.append(("own port", str(pipeline.listen) if pipeline.HasField("listen") else ""))
    facts.append(("feeds", ", ".join(pipeline.chain.feeds)))
    facts.append(("fed by", ", ".join(pipeline.chain.fed_by)))
    facts.append(("lifetime", _lifetime(pipeline)))
    facts.append(("oldest pending", _oldest(pipeline.stats, now_ms)))
    if pipeline.awaiting_ack:
        facts.append(("awaiting ack", count(pipeline.awaiting_ack)))
    if state_word(pipeline) == "jammed":
        facts.append(("last error", f"see: pipo logs {pipeline.name}"))
    if pipeline.HasField("error"):
        facts.append(("error", one_line(pipeline.error)))
    label = max(len(name) for name, value in facts if value)
    lines = [
        *_rows([pipeline], now_ms, [pipeline.notes]),
        "",
        *(f"{name:<{label}}  {value}" for name, value in facts if value),
    ]
    if pipeline.latency:
        lines += ["", *table(LATENCY, [_latency(n) for n in pipeline.latency])]
    return lines


def state_word(pipeline: pipo_pb2.PipelineInfo) -> str:
    """The pipeline's own status while it runs, else how its supervision stands."""
    return pipeline.status if pipeline.state == "running" and pipeline.status else pipeline.state


def _row(pipeline: pipo_pb2.PipelineInfo, now_ms: int) -> list[str]:
    known, stats = pipeline.HasField("stats"), pipeline.stats
    runs = pipeline.state == "running" and known
    return [
        pipeline.name,
        state_word(pipeline),
        f"v{pipeline.version}" if pipeline.version else NOTHING,
        uptime(stats.uptime) if runs else NOTHING,
        count(stats.in_per_min) if runs else NOTHING,
        count(stats.pending) if known else NOTHING,
        count(stats.delivered) if known else NOTHING,
        count(stats.dead_lettered) if known else NOTHING,
        age(now_ms - stats.last_delivery_at) if stats.HasField("last_delivery_at") else NOTHING,
    ]


def _rows(
    pipelines: Sequence[pipo_pb2.PipelineInfo], now_ms: int, warnings: Sequence[Sequence[str]]
) -> list[str]:
    if not pipelines:
        return ["no pipelines"]
    head, *rows = table(COLUMNS, [_row(p, now_ms) for p in pipelines])
    return [head, *(_marked(row, said) for row, said in zip(rows, warnings, strict=True))]


def _warnings(pipeline: pipo_pb2.PipelineInfo) -> Sequence[str]:
    return [*pipeline.notes, *([pipeline.error] if pipeline.HasField("error") else [])]


def _marked(row: str, warnings: Sequence[str]) -> str:
    return "  ".join([row, *(f"{WARNING} {one_line(warning)}" for warning in warnings)])


def _process(pipeline: pipo_pb2.PipelineInfo) -> str:
    """`pid 71 on ada, detached; 3.1% of a core, 85.3 MiB, 3 processes`; empty without one."""
    if not pipeline.HasField("pid"):
        return ""
    where = f"pid {pipeline.pid}" + (f" on {one_line(pipeline.host)}" if pipeline.host else "")
    if pipeline.detached:
        where += ", detached"
    if not pipeline.HasField("resources"):
        return where
    taken = pipeline.resources
    several = "process" if taken.procs == 1 else "processes"
    memory = f"{taken.rss / MIB:,.1f} MiB"
    return f"{where}; {taken.cpu:.1f}% of a core, {memory}, {count(taken.procs)} {several}"


def _lifetime(pipeline: pipo_pb2.PipelineInfo) -> str:
    """`2h: 1h12m left (until …Z); 7 of 50 packets`; empty where it may last as long as it likes."""
    life = pipeline.lifetime
    parts = []
    if pipeline.state == "completed" and life.HasField("reached"):
        parts.append(f"completed by {life.reached}")
    if life.HasField("ttl"):
        left = f"{uptime(life.remaining_ms // 1000)} left" if life.remaining_ms else "over"
        parts.append(f"{life.ttl}: {left} (until {stamp(life.ends_at)})")
    if life.HasField("max_packets"):
        parts.append(f"{count(pipeline.stats.accepted)} of {count(life.max_packets)} packets")
    if life.HasField("until"):
        parts.append(f"until {one_line(life.until)}")
        if parts[0] == "completed by until":
            parts[0] = f"completed by {parts.pop()}"
    return "; ".join(parts)


def _oldest(stats: pipo_pb2.Stats, now_ms: int) -> str:
    if not stats.HasField("oldest_pending_ms"):
        return "none"
    since = stats.oldest_pending_received_at or now_ms - stats.oldest_pending_ms
    return f"{age(stats.oldest_pending_ms)} (received {stamp(since)})"


def _latency(node: pipo_pb2.NodeLatency) -> list[str]:
    return [
        node.node,
        count(node.count),
        *(
            duration(getattr(node, field)) if node.HasField(field) else NOTHING
            for field in ("p50_ms", "p95_ms", "max_ms")
        ),
    ]
