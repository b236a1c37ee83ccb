"""The dead-letter queue, a replay and a purge as text (R008-R010, R020)."""

from __future__ import annotations

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli.render.dead_letters import page, purged, replayed

NOW = 1_791_666_900_000
FIRST = "01M4KTMCZ7J7Z6Y9DTCWHJ0SSP"
SECOND = "01M4KTMBN4QV509KGNN0P5H23R"
REFUSED = "POST http://127.0.0.1:59999/hook failed: Connection refused"


def row(packet_id: str, node: str, age_ms: int, version: int = 1) -> packet_pb2.PacketRow:
    return packet_pb2.PacketRow(
        packet_id=packet_id,
        state="dead_lettered",
        node=node,
        version=version,
        # The row counts a step's retries: the error has all tries (edge 15, R009).
        attempt=1,
        received_at=NOW - 60_000,
        updated_at=NOW - age_ms,
        error=packet_pb2.PacketError(code="output.failed", message=REFUSED, attempts=2),
    )


def test_the_table_of_the_seed() -> None:
    rows = [row(FIRST, "output", 5_000), row(SECOND, "output", 6_000)]
    assert page("sender", pipo_pb2.ListPacketsReply(packets=rows, total=2), NOW) == [
        "PACKET                      FAILED AT  ATTEMPTS  VER  DEAD SINCE  ERROR",
        f"{FIRST}  output            2  v1   5s ago      output.failed: {REFUSED}",
        f"{SECOND}  output            2  v1   6s ago      output.failed: {REFUSED}",
        "2 of 2 dead-lettered; replay with pipo dlq replay sender <id…>|--all",
    ]


def test_the_last_line_counts_and_the_one_before_goes_on() -> None:
    reply = pipo_pb2.ListPacketsReply(packets=[row(FIRST, "shape", 0)], total=1234, next=FIRST)
    assert page("sender", reply, NOW, options=" --limit 1")[-2:] == [
        f"go on with pipo dlq sender --limit 1 --after {FIRST}",
        "1 of 1,234 dead-lettered; replay with pipo dlq replay sender <id…>|--all",
    ]


def test_an_empty_queue() -> None:
    assert page("sender", pipo_pb2.ListPacketsReply(), NOW) == ["0 of 0 dead-lettered"]


def test_a_replay_names_the_step_of_each() -> None:
    units = [pipo_pb2.ReplayedUnit(id=FIRST, node="$output")]
    copies = [
        pipo_pb2.ReplayedUnit(id=f"{SECOND}:a", node="$output"),
        pipo_pb2.ReplayedUnit(id=f"{SECOND}:b/c", node="shape"),
    ]
    reply = pipo_pb2.ReplayReply(
        replayed=3,
        packets=[
            pipo_pb2.ReplayedPacket(packet_id=FIRST, units=units),
            pipo_pb2.ReplayedPacket(packet_id=SECOND, units=copies),
        ],
        skipped=[pipo_pb2.SkippedPacket(packet_id="01X", reason="no\nstep")],
    )
    assert replayed("sender", reply) == [
        "replayed 3 packet(s) from the dead-letter queue of sender",
        f"  {FIRST}  → output",
        f"  {SECOND}  → output (a), shape (b/c)",
        "  and 1 more",
        "skipped:",
        "  01X  no step",
        "follow them with pipo packets sender or pipo inspect sender <id>",
    ]
    assert replayed("sender", pipo_pb2.ReplayReply()) == [
        "replayed 0 packet(s) from the dead-letter queue of sender"
    ]


def test_a_purge() -> None:
    reply = pipo_pb2.PurgeReply(purged=102, packet_ids=[FIRST, SECOND])
    assert purged("sender", reply) == [
        "purged 102 packet(s) from the dead-letter queue of sender",
        f"  {FIRST}",
        f"  {SECOND}",
        "  and 100 more",
    ]
