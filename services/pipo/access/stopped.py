"""What a pipeline that does not answer still tells: its journal, opened read-only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from pipo.access import declared_secrets
from pipo.errors import NotFound, Unavailable
from pipo.home.desired import Desired
from pipo.home.paths import PipelineHome
from pipo.journal import reads, versions
from pipo.journal.changes import RESTARTED
from pipo.journal.endings import last_ending
from pipo.rpc import payloads, to_proto
from pipo.rpc.stubs import packet_pb2, pipo_pb2

SOURCE = "journal"
READ_TIMEOUT_S = 10.0


async def packets(
    pipeline: PipelineHome, request: pipo_pb2.ListPacketsRequest, limit: int
) -> pipo_pb2.ListPacketsReply:
    async with opened(pipeline) as rows:
        if rows is None:
            return pipo_pb2.ListPacketsReply(source=SOURCE)
        page = await reads.packets(rows, request.state or None, limit, request.after or None)
        return to_proto.packet_page(page, SOURCE)


async def trace(pipeline: PipelineHome, packet_id: str) -> packet_pb2.Trace:
    """A packet's trace; its payloads are withheld where a secret of a version has no value here.

    Raises: NotFound, if the journal has no such packet.
    """
    async with opened(pipeline) as rows:
        found = None if rows is None else await reads.trace(rows, packet_id)
        history = None if rows is None else await versions.history(rows)
    if found is None or history is None:
        raise no_packet(pipeline.name, packet_id)
    made = to_proto.trace(found, SOURCE, pipeline.name)
    secrets = declared_secrets.known(history.versions)
    if secrets.complete:
        payloads.mask(made, secrets.redactor.data)
    else:
        payloads.withhold(made)
    return made


async def events(pipeline: PipelineHome, after_seq: int, limit: int) -> pipo_pb2.ListEventsReply:
    async with opened(pipeline) as rows:
        if rows is None:
            return pipo_pb2.ListEventsReply(last_seq=after_seq, source=SOURCE)
        page = await reads.events(rows, after_seq, limit)
        return to_proto.event_page(page, SOURCE, pipeline.name)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What /metrics takes from a journal, running or not (design §9)."""

    counters: Mapping[str, int]
    oldest_received_at: int | None = None
    last_delivery_at: int | None = None


async def numbers(pipeline: PipelineHome) -> Numbers:
    """The journal's numbers; none without a journal."""
    async with opened(pipeline) as rows:
        if rows is None:
            return Numbers({})
        oldest = await reads.oldest_pending(rows)
        return Numbers(
            counters=await reads.counters(rows),
            oldest_received_at=None if oldest is None else oldest.received_at,
            last_delivery_at=await reads.last_delivery_at(rows),
        )


async def info(
    pipeline: PipelineHome, wanted: Desired | None, now_ms: int
) -> pipo_pb2.PipelineInfo:
    """The entry of a pipeline that does not run; `state` is its host's last word."""
    made = pipo_pb2.PipelineInfo(name=pipeline.name, state="stopped")
    if wanted is not None:
        made.file = wanted.file
        made.state = wanted.state or "stopped"
        made.restarts = len(wanted.restart_times)
        if wanted.desired == "running":
            # What it runs with, once it does.
            made.detached = wanted.detached
            if (ttl := wanted.options.get("ttl")) is not None:
                made.ttl = ttl
        if wanted.last_exit is not None:
            made.last_exit = wanted.last_exit
        if wanted.error is not None:
            made.error = wanted.error
    async with opened(pipeline) as rows:
        made.stats.SetInParent()
        if rows is not None:
            made.stats.CopyFrom(await _stats(rows, now_ms))
            version = await versions.latest(rows)
            if version is not None:
                made.version = version.version
                made.chain.CopyFrom(chain_of(version.compiled))
                ending = await last_ending(rows)
                # The journal's own word: no host may have seen the end yet (edge 447).
                if ending is not None and ending.kind == "completed":
                    made.lifetime.CopyFrom(_completed(ending.reason, version.compiled))
            made.last_seq = await _last_seq(rows)
    return made


async def state_left(pipeline: PipelineHome, wanted: Desired | None) -> str:
    """The state of one whose process is gone and whose end no host has seen yet.

    A detached one may end by itself, or be stopped, while none is there (edge 447): its journal
    says how. After a crash it waits for the next host, unless it is not to run.
    """
    async with opened(pipeline) as rows:
        ending = None if rows is None else await last_ending(rows)
    if ending is not None and ending.reason != RESTARTED:
        return ending.kind
    return "backoff" if wanted is not None and wanted.desired == "running" else "stopped"


def _completed(reason: str, compiled: bytes) -> pipo_pb2.Lifetime:
    """By which limit a pipeline completed, and what its version says of the others.

    An end that was journaled without its reason tells none.
    """
    limits = msgspec.json.decode(compiled).get("lifetime") or {}
    return pipo_pb2.Lifetime(
        max_packets=limits.get("max_packets"), until=limits.get("until"), reached=reason or None
    )


def chain_of(compiled: bytes) -> pipo_pb2.Chain:
    """The pipelines at the ends of a version, without the language, which costs a tenth of a second."""
    version = msgspec.json.decode(compiled)
    output = version.get("output", {"to": "", "settings": {}})
    taken = ((one["via"], one["settings"]) for one in version.get("inputs", ()))
    return to_proto.chain(output["to"], output["settings"], taken)


def no_packet(name: str, packet_id: str) -> NotFound:
    return NotFound(
        f"pipeline {name!r} has no packet {packet_id!r}",
        hint=f"pipo packets {name} lists the newest; retention removes old ones",
    )


@asynccontextmanager
async def opened(pipeline: PipelineHome) -> AsyncIterator[reads.Rows | None]:
    """The journal's rows, or None when there is no journal yet.

    Raises: Unavailable, if reading takes longer than 10 s.
    """
    if not pipeline.journal.exists():
        yield None
        return
    # A pipeline process, which may use this module's counts, must never load this library.
    from pipo.journal.readonly import open_journal_readonly

    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            rows = await open_journal_readonly(pipeline.journal)
            try:
                yield rows
            finally:
                await rows.close()
    except TimeoutError as error:
        raise Unavailable(
            f"the journal of pipeline {pipeline.name!r} took longer than {READ_TIMEOUT_S:.0f} s to read",
            hint="the disk may be busy; try again",
        ) from error


async def _stats(rows: reads.Rows, now_ms: int) -> pipo_pb2.Stats:
    stats = to_proto.stats(await reads.counters(rows))
    last_delivery_at = await reads.last_delivery_at(rows)
    if last_delivery_at is not None:
        stats.last_delivery_at = last_delivery_at
    oldest = await reads.oldest_pending(rows)
    if oldest is not None:
        stats.oldest_pending_received_at = oldest.received_at
        stats.oldest_pending_ms = max(0, now_ms - oldest.received_at)
    return stats


async def _last_seq(rows: reads.Rows) -> int:
    """The number of the newest event."""
    found = await rows.rows("SELECT max(seq) FROM events")
    return int(found[0][0] or 0)
