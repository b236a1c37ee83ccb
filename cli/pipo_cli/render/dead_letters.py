"""`pipo dlq`: the queue, and what a replay or a purge did (edge 387, R008-R010, R020)."""

from __future__ import annotations

from collections.abc import Iterable

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli.render.packets import error_text, plain_step
from pipo_cli.render.tables import Column, one_line, table
from pipo_cli.render.times import NOTHING, age, count

COLUMNS = (
    Column("PACKET"),
    Column("FAILED AT"),
    Column("ATTEMPTS", "right"),
    Column("VER"),
    Column("DEAD SINCE"),
    Column("ERROR"),
)


def page(
    name: str, reply: pipo_pb2.ListPacketsReply, now_ms: int, *, options: str = ""
) -> list[str]:
    """The rows, how to see the rest, and what to do with them; `options` as they were given."""
    rows = [_row(packet, now_ms) for packet in reply.packets]
    lines = table(COLUMNS, rows) if rows else []
    if reply.next:
        lines.append(f"go on with pipo dlq {name}{options} --after {reply.next}")
    last = f"{count(len(reply.packets))} of {count(reply.total)} dead-lettered"
    if reply.total:
        last += f"; replay with pipo dlq replay {name} <id…>|--all"
    return [*lines, last]


def replayed(name: str, reply: pipo_pb2.ReplayReply) -> list[str]:
    lines = [f"replayed {count(reply.replayed)} packet(s) from the dead-letter queue of {name}"]
    lines += [f"  {packet.packet_id}  → {_steps(packet.units)}" for packet in reply.packets]
    lines += [*unlisted(reply.replayed, len(reply.packets)), *skipped_lines(reply.skipped)]
    if reply.replayed:
        lines.append(f"follow them with pipo packets {name} or pipo inspect {name} <id>")
    return lines


def purged(name: str, reply: pipo_pb2.PurgeReply) -> list[str]:
    return [
        f"purged {count(reply.purged)} packet(s) from the dead-letter queue of {name}",
        *(f"  {packet_id}" for packet_id in reply.packet_ids),
        *unlisted(reply.purged, len(reply.packet_ids)),
        *skipped_lines(reply.skipped),
    ]


def _row(packet: packet_pb2.PacketRow, now_ms: int) -> list[str]:
    return [
        packet.packet_id,
        plain_step(packet.node) or NOTHING,
        count(packet.error.attempts),
        f"v{packet.version}",
        age(now_ms - packet.updated_at),
        error_text(packet.error),
    ]


def _steps(units: Iterable[pipo_pb2.ReplayedUnit]) -> str:
    """`output`; of a split packet `output (a), shape (b/c)`."""
    parts = []
    for unit in units:
        branch = unit.id.partition(":")[2]
        parts.append(plain_step(unit.node) + (f" ({branch})" if branch else ""))
    return ", ".join(parts)


def unlisted(total: int, shown: int) -> list[str]:
    """How many a list leaves out."""
    return [f"  and {count(total - shown)} more"] if total > shown else []


def skipped_lines(skipped: Iterable[pipo_pb2.SkippedPacket]) -> list[str]:
    """Those that were left, and why."""
    lines = [f"  {one.packet_id}  {one_line(one.reason)}" for one in skipped]
    return ["skipped:", *lines] if lines else []
