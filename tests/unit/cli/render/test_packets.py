"""The packet list and the answer to a push (edge 384, 386, 389)."""

from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli.render.packets import page, pushed

NOW = 1_791_666_900_000
FIRST = "01M4KTMCZ7J7Z6Y9DTCWHJ0SSP"
SECOND = "01M4KTMBN4QV509KGNN0P5H23R"


def row(packet_id: str, state: str, **more: object) -> packet_pb2.PacketRow:
    return packet_pb2.PacketRow(
        packet_id=packet_id,
        state=state,
        version=1,
        received_at=NOW - 5_000,
        updated_at=NOW - 4_000,
        **more,  # type: ignore[arg-type]
    )


def test_a_page() -> None:
    reply = pipo_pb2.ListPacketsReply(
        packets=[
            row(
                FIRST,
                "dead_lettered",
                node="output",
                attempt=1,
                error=packet_pb2.PacketError(code="output.failed", message="no\nroute"),
            ),
            row(SECOND, "delivered"),
        ],
        total=2,
    )
    assert page("sender", reply, NOW) == [
        "PACKET                      STATE          NODE    VER  RETRIES  RECEIVED  UPDATED  ERROR",
        f"{FIRST}  dead_lettered  output  v1         1  5s ago    4s ago   output.failed: no route",
        f"{SECOND}  delivered      -       v1         0  5s ago    4s ago",
        "2 of 2 packets",
    ]


def test_a_cursor_prints_as_a_plain_word() -> None:
    reply = pipo_pb2.ListPacketsReply(packets=[row(FIRST, "writing", node="$output")], total=1)
    assert page("sender", reply, NOW)[1].split()[2] == "output"


def test_the_footer_says_how_to_go_on() -> None:
    reply = pipo_pb2.ListPacketsReply(packets=[row(FIRST, "delivered")], total=1234, next=FIRST)
    assert page("sender", reply, NOW)[-1] == (
        f"1 of 1,234 packets; go on with pipo packets sender --after {FIRST}"
    )


def test_no_packets() -> None:
    assert page("sender", pipo_pb2.ListPacketsReply(), NOW) == ["0 of 0 packets"]


def test_a_push_prints_id_pipeline_and_state() -> None:
    reply = pipo_pb2.PushReply(packet_id=FIRST, pipeline="sender", state="accepted")
    assert pushed(reply) == f"{FIRST}  sender  (accepted)"
