"""A packet's story, exactly as recovering-packets prints it (R012, R013)."""

import pytest

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.inspect import story

RECEIVED = 1_791_666_828_263
NOW = RECEIVED + 60_000
REFUSED = "POST http://127.0.0.1:59999/hook failed: … Connection refused"

SAMPLE = """\
packet 01M4KTMCZ7J7Z6Y9DTCWHJ0SSP  sender v1  dead_lettered
received 2026-10-10T21:13:48.263Z via push (cli), dead_lettered after 108ms

  21:13:48.263  input   accepted
                      data {"msg":"yo"}
  21:13:48.265  shape   done            +2ms
  21:13:48.371  output  dead-lettered   +106ms  2 attempts
                      retry 1: POST http://127.0.0.1:59999/hook failed: … Connection refused (waited 100ms)
                      error output.failed: POST http://127.0.0.1:59999/hook failed: … Connection refused\
"""


def packet(**more: object) -> packet_pb2.Packet:
    made = packet_pb2.Packet(
        packet_id="01M4KTMCZ7J7Z6Y9DTCWHJ0SSP",
        state="delivered",
        version=1,
        input="input",
        trigger="push",
        source="cli",
        received_at=RECEIVED,
        updated_at=RECEIVED + 108,
    )
    made.MergeFrom(packet_pb2.Packet(**more))  # type: ignore[arg-type]
    return made


def accepted() -> packet_pb2.Step:
    return packet_pb2.Step(step="input", event="packet.accepted", at=RECEIVED, data=b'{"msg":"yo"}')


@pytest.mark.seed("R012", "R013")
def test_the_seed_sample_to_the_letter() -> None:
    trace = packet_pb2.Trace(
        packet=packet(
            state="dead_lettered",
            node="output",
            error=packet_pb2.PacketError(code="output.failed", message=REFUSED, attempts=2),
        ),
        steps=[
            accepted(),
            packet_pb2.Step(step="shape", event="node.done", at=RECEIVED + 2, ms=2, attempts=1),
            packet_pb2.Step(
                step="$output",
                event="packet.dead_lettered",
                at=RECEIVED + 108,
                ms=106,
                attempts=2,
                retries=[packet_pb2.Retry(attempt=1, wait_ms=100, error=REFUSED)],
            ),
        ],
    )
    assert "\n".join(story("sender", trace, NOW)) == SAMPLE


def test_a_delivered_packet_shows_what_its_check_saw() -> None:
    trace = packet_pb2.Trace(
        packet=packet(evidence=b'{"row":1}'),
        steps=[
            accepted(),
            packet_pb2.Step(step="$output", event="output.written", at=RECEIVED + 5, ms=5),
            packet_pb2.Step(step="$verify", event="packet.delivered", at=RECEIVED + 108, ms=1501),
        ],
        events=[
            TAKEN_IN,
            packet_pb2.Event(seq=2, type="output.written", node="output", at=RECEIVED + 5),
            packet_pb2.Event(
                seq=3,
                type="packet.delivered",
                node="delivered",
                at=RECEIVED + 108,
                detail=b'{"evidence":{"row":1}}',
            ),
        ],
    )
    assert story("s", trace, NOW)[3:] == [
        "  21:13:48.263  input   accepted",
        '                      data {"msg":"yo"}',
        "  21:13:48.268  output  written         +5ms",
        "  21:13:48.371  verify  delivered       +1.50s",
        '                      seen {"row":1}',
    ]


def unverified(at: int, message: str) -> packet_pb2.Event:
    detail = (
        b'{"code":"delivery.unverified","message":"%s","node":"delivered","attempts":2,'
        b'"evidence":{"state":"dead_lettered"}}' % message.encode()
    )
    return packet_pb2.Event(type="delivery.unverified", node="delivered", at=at, detail=detail)


def verified(event: str, at: int, *notes: packet_pb2.Event) -> packet_pb2.Step:
    return packet_pb2.Step(step="$verify", event=event, at=at, ms=1, notes=notes)


def test_a_write_shows_its_result_and_a_check_that_failed_what_it_saw() -> None:
    """Each once: a check's error is the packet's too, until a replay."""
    dead = "packet.dead_lettered"
    first = packet_pb2.Step(step="$output", event="output.written", at=RECEIVED + 5, ms=5)
    again = packet_pb2.Step(step="$output", event="output.written", at=RECEIVED + 7, ms=1)
    error = packet_pb2.PacketError(code="delivery.unverified", message="still no", attempts=2)
    trace = packet_pb2.Trace(
        packet=packet(state="dead_lettered", error=error, result=b'{"packet_id":"01B"}'),
        steps=[
            accepted(),
            first,
            verified(dead, RECEIVED + 6, unverified(RECEIVED + 6, "not yet")),
            again,
            verified(dead, RECEIVED + 8, unverified(RECEIVED + 8, "still no")),
        ],
    )
    assert [line.strip() for line in story("s", trace, NOW)[5:]] == [
        "21:13:48.268  output  written         +5ms",
        "21:13:48.269  verify  dead-lettered   +1ms",
        "error delivery.unverified: not yet",
        'seen {"state":"dead_lettered"}',
        "21:13:48.270  output  written         +1ms",
        'result {"packet_id":"01B"}',
        "21:13:48.271  verify  dead-lettered   +1ms",
        "error delivery.unverified: still no",
        'seen {"state":"dead_lettered"}',
    ]


@pytest.mark.seed("R013", "R047")
def test_each_life_tells_its_end_and_who_took_it_up_again() -> None:
    """What a packet went through before a replay or a decision is part of its full story."""
    at = RECEIVED + 5

    def step(event: str, **more: object) -> packet_pb2.Step:
        return packet_pb2.Step(step="$output", event=event, at=at, ms=1, **more)  # type: ignore[arg-type]

    def event(type_: str, detail: str) -> packet_pb2.Event:
        return packet_pb2.Event(type=type_, node="output", at=at, detail=detail.encode())

    def failure(message: str) -> str:
        return f'{{"code":"output.failed","message":"{message}"}}'

    def escalated(message: str) -> packet_pb2.Event:
        return event("packet.escalated", f'{{"reason":"error","error":{failure(message)}}}')

    resolved = '{"action":"%s","by":"ada","by_kind":"human","reason":%s}'
    trace = packet_pb2.Trace(
        packet=packet(
            state="dead_lettered",
            error=packet_pb2.PacketError(code="output.failed", message="three", attempts=1),
        ),
        steps=[
            accepted(),
            step(
                "packet.dead_lettered",
                retries=[packet_pb2.Retry(attempt=1, wait_ms=100, error="one")],
            ),
            step("dlq.replayed"),
            step("packet.escalated"),
            step("packet.resolved"),
            step("packet.escalated"),
            step(
                "packet.dead_lettered",
                notes=[event("packet.resolved", resolved % ("dead_letter", "null"))],
            ),
        ],
        events=[
            TAKEN_IN,
            event("step.retry", '{"attempt":1,"wait":100.0,"error":"one"}'),
            event("packet.dead_lettered", failure("one")),
            event("dlq.replayed", f'{{"by":"bo","error":{failure("one")}}}'),
            escalated("two"),
            event("packet.resolved", resolved % ("retry", '"provider back up"')),
            escalated("three"),
            event("packet.resolved", resolved % ("dead_letter", "null")),
            event("packet.dead_lettered", failure("three")),
        ],
    )
    assert [line.strip() for line in story("s", trace, NOW)[5:]] == [
        "21:13:48.268  output  dead-lettered   +1ms",
        "retry 1: one (waited 100ms)",
        "error output.failed: one",
        "21:13:48.268  output  replayed        +1ms",
        "by bo",
        "21:13:48.268  output  escalated       +1ms",
        "error output.failed: two",
        "21:13:48.268  output  resolved        +1ms",
        "retry by ada: provider back up",
        "21:13:48.268  output  escalated       +1ms",
        "error output.failed: three",
        "21:13:48.268  output  dead-lettered   +1ms",
        "resolved: dead_letter by ada",
        "error output.failed: three",
    ]


TAKEN_IN = packet_pb2.Event(seq=1, type="packet.accepted", at=RECEIVED)


def retried(n: int, *, wait_ms: int = 100) -> packet_pb2.Event:
    """The n-th failed try of the write, 100 ms after the one before."""
    detail = b'{"attempt":%d,"wait":%d.0,"error":"it is locked"}' % (n, wait_ms)
    return packet_pb2.Event(
        seq=n + 1, type="step.retry", node="output", at=RECEIVED + n * 100, detail=detail
    )


def held(*, at: int = RECEIVED + 300) -> packet_pb2.Event:
    detail = b'{"how":"pause","error":{"code":"output.failed","message":"it is locked"}}'
    return packet_pb2.Event(seq=9, type="packet.held", node="output", at=at, detail=detail)


def test_a_held_packet_says_why() -> None:
    trace = packet_pb2.Trace(
        packet=packet(state="writing"),
        steps=[accepted()],
        events=[TAKEN_IN, retried(1), retried(2), held()],
    )
    assert story("s", trace, NOW)[5:] == [
        "  21:13:48.563  output  held            +300ms  3 attempts",
        "                      retry 1: it is locked (waited 100ms)",
        "                      retry 2: it is locked (waited 100ms)",
        "                      held output.failed: it is locked",
    ]
    # Once it is tried again, it is held no more; what it has been through stays to be seen.
    trace.events.append(retried(7))
    assert story("s", trace, NOW)[5:] == [
        "  21:13:48.963  output  retrying        +700ms  4 attempts",
        "                      retry 1: it is locked (waited 100ms)",
        "                      retry 2: it is locked (waited 100ms)",
        "                      retry 7: it is locked (waited 100ms)",
    ]


def test_a_wait_that_is_not_over_says_until_when() -> None:
    trace = packet_pb2.Trace(
        packet=packet(state="writing", node="$output", attempt=2),
        steps=[accepted()],
        events=[TAKEN_IN, retried(1), retried(2, wait_ms=600_000)],
    )
    assert story("s", trace, RECEIVED + 5_000)[5:] == [
        "  21:13:48.463  output  retrying        +200ms  2 attempts",
        "                      retry 1: it is locked (waited 100ms)",
        "                      retry 2: it is locked (waits 10m00s, until 21:23:48.463)",
    ]
    assert story("s", trace, RECEIVED + 600_200)[-1].endswith("(waited 10m00s)")


def test_a_wait_for_an_ack_is_told() -> None:
    asked = packet_pb2.Event(
        seq=3,
        type="delivery.awaiting_ack",
        node="delivered",
        at=RECEIVED + 5,
        detail=b'{"deadline":1760000000000,"since":5}',
    )
    written = packet_pb2.Step(step="$output", event="output.written", at=RECEIVED + 5, ms=5)
    trace = packet_pb2.Trace(
        packet=packet(state="verifying"),
        steps=[accepted(), written],
        events=[TAKEN_IN, packet_pb2.Event(seq=2, type="output.written"), asked],
    )
    assert story("s", trace, NOW)[6:] == [
        "  21:13:48.268  verify  awaiting-ack    +0ms",
        "                      waits for an ack until 2025-10-09T08:53:20.000Z",
    ]


def test_a_packet_on_its_way_says_for_how_long() -> None:
    trace = packet_pb2.Trace(packet=packet(state="verifying"), steps=[accepted()])
    assert story("s", trace, NOW)[1].endswith("via push (cli), verifying for 1m00s")


@pytest.mark.parametrize(
    ("key", "shown"), [("01A", ""), ("01A:west", ", key 01A:west")], ids=["packet", "copy"]
)
def test_a_packet_that_was_handed_over_names_what_it_was_made_of(key: str, shown: str) -> None:
    upstream = f'{{"pipeline":"gate","packet_id":"01A","key":"{key}","depth":2}}'.encode()
    trace = packet_pb2.Trace(packet=packet(upstream=upstream), steps=[accepted()])
    assert story("s", trace, NOW)[2] == f"handed over from 01A of gate{shown}, hop 2"


def test_notes_stand_below_their_step() -> None:
    noted = packet_pb2.Step(
        step="shape",
        event="node.done",
        at=RECEIVED,
        ms=0,
        notes=[
            packet_pb2.Event(type="log", detail=b'{"level":"warn","message":"two\\nlines"}'),
            packet_pb2.Event(type="packet.held"),
            packet_pb2.Event(type="mine", detail=b'{"a":1}'),
        ],
    )
    assert story("s", packet_pb2.Trace(packet=packet(), steps=[noted]), NOW)[4:] == [
        "                     log warn: two",
        "                       lines",
        "                     packet.held",
        '                     mine {"a":1}',
    ]


def copy(state: str, event: str, detail: bytes) -> packet_pb2.Copy:
    """A copy whose node `a` has run; then the event came."""
    moves = state in ("delivered", "dead_lettered", "escalated")
    steps = [
        packet_pb2.Step(step="a", event="packet.branched", at=RECEIVED),
        packet_pb2.Step(step="a", event="node.done", at=RECEIVED, ms=1),
        *([packet_pb2.Step(step="$output", event=event, at=RECEIVED + 2, ms=2)] if moves else []),
    ]
    last = packet_pb2.Event(seq=4, type=event, node="output", at=RECEIVED + 2, detail=detail)
    born = [packet_pb2.Event(seq=2), packet_pb2.Event(seq=3)]
    return packet_pb2.Copy(
        id="01M4KTMCZ7J7Z6Y9DTCWHJ0SSP:a",
        branch="a",
        state=state,
        steps=steps,
        events=[*born, last],
    )


FAILED = b'{"code":"output.failed","message":"it is locked"}'


@pytest.mark.parametrize(
    ("made", "last"),
    [
        (
            copy("dead_lettered", "packet.dead_lettered", FAILED),
            ["  21:13:48.265  output  dead-lettered   +2ms", "error output.failed: it is locked"],
        ),
        (
            copy("escalated", "packet.escalated", b'{"reason":"error","error":%s}' % FAILED),
            ["  21:13:48.265  output  escalated       +2ms", "error output.failed: it is locked"],
        ),
        (
            copy("delivered", "packet.delivered", b'{"evidence":{"row":1}}'),
            ["  21:13:48.265  output  delivered       +2ms", 'seen {"row":1}'],
        ),
        (
            copy("writing", "packet.held", b'{"how":"pause","error":%s}' % FAILED),
            ["  21:13:48.265  output  held            +2ms", "held output.failed: it is locked"],
        ),
        (
            copy("writing", "step.retry", b'{"attempt":1,"wait":700,"error":"it is locked"}'),
            [
                "  21:13:48.265  output  retrying        +2ms",
                "retry 1: it is locked (waited 700ms)",
            ],
        ),
    ],
    ids=["dead-lettered", "escalated", "delivered", "held", "retrying"],
)
def test_each_copy_has_its_own_section(made: packet_pb2.Copy, last: list[str]) -> None:
    trace = packet_pb2.Trace(packet=packet(state="branched"), steps=[accepted()], copies=[made])
    assert [line if line.startswith("  2") else line.strip() for line in story("s", trace, NOW)][
        -6:
    ] == [
        "",
        f"copy 01M4KTMCZ7J7Z6Y9DTCWHJ0SSP:a  {made.state}",
        "  21:13:48.263  a       branched",
        "  21:13:48.263  a       done            +1ms",
        *last,
    ]


def test_long_data_is_cut_and_says_so() -> None:
    long = packet_pb2.Step(
        step="input", event="accepted", at=RECEIVED, data=b'"' + b"x" * 9998 + b'"'
    )
    shown = story("s", packet_pb2.Trace(packet=packet(), steps=[long]), NOW)[4]
    assert shown.endswith("… (cut; 10,000 bytes, whole with --json)")


@pytest.mark.seed("R027", "R028")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ',"error":{"code":"output.failed","message":"no table"}',
            ["error output.failed: no table"],
        ),
        ("", []),
    ],
)
def test_of_a_purged_packet_its_record_is_left(error: str, said: list[str]) -> None:
    event = packet_pb2.Event(
        packet_id="01M4KTMCZ7J7Z6Y9DTCWHJ0SSP",
        type="dlq.purged",
        at=RECEIVED + 60_000,
        detail=f'{{"by":"ada","version":2,"received_at":{RECEIVED}{error}}}'.encode(),
    )
    assert story("sender", packet_pb2.Trace(events=[event]), NOW) == [
        "packet 01M4KTMCZ7J7Z6Y9DTCWHJ0SSP  sender v2  purged",
        "received 2026-10-10T21:13:48.263Z, purged 2026-10-10T21:14:48.263Z by ada",
        *said,
    ]


def test_withheld_payloads_are_told() -> None:
    trace = packet_pb2.Trace(packet=packet(), steps=[accepted()], withheld=["packet.data"])
    assert story("sender", trace, NOW)[2].startswith("its data is withheld: a secret of")
    trace.ClearField("withheld")
    assert "withheld" not in "\n".join(story("sender", trace, NOW))
