"""`pipo packets`, `pipo push`, `pipo ack` and `pipo resolve` (edge 384, 386, 389)."""

from __future__ import annotations

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli.render.tables import Column, table
from pipo_cli.render.times import NOTHING, age, count

COLUMNS = (
    Column("PACKET"),
    Column("STATE"),
    Column("NODE"),
    Column("VER"),
    Column("RETRIES", "right"),
    Column("RECEIVED"),
    Column("UPDATED"),
    Column("ERROR"),
)


def page(
    name: str, reply: pipo_pb2.ListPacketsReply, now_ms: int, *, options: str = ""
) -> list[str]:
    """The rows, then how many of how many, and how to see the rest; `options` as they were given."""
    shown = f"{count(len(reply.packets))} of {count(reply.total)} packets"
    command = f"pipo packets {name}{options} --after {reply.next}"
    more = f"; go on with {command}" if reply.next else ""
    rows = [_row(p, now_ms) for p in reply.packets]
    return [*(table(COLUMNS, rows) if rows else ()), shown + more]


def pushed(reply: pipo_pb2.PushReply) -> str:
    """`01M4KTMCZ7J7Z6Y9DTCWHJ0SSP  sender  (accepted)`."""
    return f"{reply.packet_id}  {reply.pipeline}  ({reply.state})"


def acked(reply: pipo_pb2.AckReply) -> str:
    """`01M4KTMCZ7J7Z6Y9DTCWHJ0SSP  acked  (verifying)`."""
    return f"{reply.packet_id}  {'already acked' if reply.already else 'acked'}  ({reply.state})"


def resolved(name: str, reply: pipo_pb2.ResolveReply) -> list[str]:
    """What was decided, and where each of them went."""
    done = {"retry": "retrying", "dead_letter": "dead-lettered", "drop": "dropped"}[reply.action]
    lines = [f"{done} {count(len(reply.resolved))} packet(s) of {name}"]
    for one in reply.resolved:
        lines.append(f"  {one.packet_id}  → {plain_step(one.node) or one.state}")
    follow = {
        "retry": f"follow them with pipo packets {name} or pipo inspect {name} <id>",
        "dead_letter": f"pipo dlq {name} lists them",
    }.get(reply.action)
    return [*lines, follow] if follow else lines


def plain_step(cursor: str) -> str:
    """A step without the mark of the built-in ones: `$output` is `output`."""
    return cursor.removeprefix("$")


def error_text(error: packet_pb2.PacketError) -> str:
    """`output.failed: POST … failed`."""
    return f"{error.code}: {error.message}"


def _row(packet: packet_pb2.PacketRow, now_ms: int) -> list[str]:
    return [
        packet.packet_id,
        packet.state,
        plain_step(packet.node) or NOTHING,
        f"v{packet.version}",
        count(packet.attempt),
        age(now_ms - packet.received_at),
        age(now_ms - packet.updated_at),
        error_text(packet.error) if packet.HasField("error") else "",
    ]
