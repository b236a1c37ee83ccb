"""The status table and the details of one pipeline (edge 395, 396)."""

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.status import details, overview

NOW = 1_791_666_900_000


def running(**more: object) -> pipo_pb2.PipelineInfo:
    info = pipo_pb2.PipelineInfo(
        name="heartbeat",
        file="/work/heartbeat.pipo",
        state="running",
        status="active",
        version=3,
        pid=71,
        stats=pipo_pb2.Stats(
            accepted=1300,
            delivered=1234,
            pending=2,
            dead_lettered=1,
            uptime=724,
            in_per_min=12,
            last_delivery_at=NOW - 6_000,
        ),
    )
    info.MergeFrom(pipo_pb2.PipelineInfo(**more))  # type: ignore[arg-type]
    return info


def test_a_running_pipeline() -> None:
    assert overview([running()], NOW) == [
        "PIPELINE   STATE   VER  UPTIME  IN/MIN  PENDING  DELIVERED  DLQ  LAST DELIVERY",
        "heartbeat  active  v3   12m04s      12        2      1,234    1  6s ago",
    ]


def test_a_stopped_pipeline_has_no_uptime_and_what_is_unknown_is_a_dash() -> None:
    stopped = pipo_pb2.PipelineInfo(
        name="a", state="stopped", version=1, stats=pipo_pb2.Stats(delivered=5)
    )
    unknown = pipo_pb2.PipelineInfo(name="b", state="failed")
    _, first, second = overview([stopped, unknown], NOW)
    assert first.split() == ["a", "stopped", "v1", "-", "-", "0", "5", "0", "-"]
    assert second.split() == ["b", "failed", "-", "-", "-", "-", "-", "-", "-"]


def test_a_jammed_row_says_where_it_stands() -> None:
    jammed = running(status="jammed", notes=["stalled at 'enrich'"])
    assert overview([jammed], NOW)[1].endswith("6s ago  ⚠ stalled at 'enrich'")
    assert "last error      see: pipo logs heartbeat" in details(jammed, NOW)
    assert not any("last error" in line for line in details(running(), NOW))


def test_supervision_shows_while_the_pipeline_itself_says_nothing() -> None:
    assert "backoff" in overview([running(state="backoff", status="active")], NOW)[1]


def test_why_a_pipeline_failed_stands_behind_its_row_and_once_in_its_details() -> None:
    failed = running(state="failed", error="error at $output: no table 'x'")
    assert overview([failed], NOW)[1].endswith("  ⚠ error at $output: no table 'x'")
    assert "\n".join(details(failed, NOW)).count("no table 'x'") == 1


def test_no_pipelines() -> None:
    assert overview([], NOW) == ["no pipelines"]


def test_details_add_the_oldest_packet_and_the_latency() -> None:
    info = running(
        inputs=[pipo_pb2.InputInfo(name="input", via="http", address="POST /in/heartbeat/x")],
        latency=[
            pipo_pb2.NodeLatency(node="shape", count=100, p50_ms=2, p95_ms=12, max_ms=1500),
            pipo_pb2.NodeLatency(node="output"),
        ],
    )
    info.stats.oldest_pending_ms = 360_000
    info.stats.oldest_pending_received_at = NOW - 360_000
    assert details(info, NOW)[2:] == [
        "",
        "file            /work/heartbeat.pipo",
        "process         pid 71",
        "input           POST /in/heartbeat/x",
        "oldest pending  6m ago (received 2026-10-10T21:09:00.000Z)",
        "",
        "NODE    COUNT  P50   P95   MAX",
        "shape     100  2ms  12ms  1.5s",
        "output      0    -     -     -",
    ]


def test_several_inputs_are_named_as_push_wants_them() -> None:
    web = pipo_pb2.InputInfo(name="web", via="http", address="POST /in/heartbeat/x")
    hand = pipo_pb2.InputInfo(name="hand", via="push")
    shown = details(running(inputs=[web, hand]), NOW)
    assert "input           web: POST /in/heartbeat/x" in shown
    assert "input           hand: push" in shown


def test_details_without_a_pending_packet() -> None:
    assert "oldest pending  none" in details(running(), NOW)
    parked = running()
    parked.awaiting_ack = 1234
    assert "awaiting ack    1,234" in details(parked, NOW)


def test_details_without_a_step_that_ran_have_no_table_of_steps() -> None:
    stopped = pipo_pb2.PipelineInfo(name="x", state="stopped", stats=pipo_pb2.Stats())
    assert details(stopped, NOW)[-1] == "oldest pending  none"


def test_details_name_the_pipelines_at_both_ends() -> None:
    chained = running()
    chained.chain.feeds.append("people-store")
    chained.chain.fed_by.extend(["web", "import"])
    shown = details(chained, NOW)
    assert "feeds           people-store" in shown
    assert "fed by          web, import" in shown


def test_details_tell_where_it_runs_and_what_it_takes() -> None:
    lone = pipo_pb2.Resources(cpu=0.25, rss=89_442_254, procs=1)
    shown = details(running(host="ada", resources=lone), NOW)
    assert "process         pid 71 on ada; 0.2% of a core, 85.3 MiB, 1 process" in shown
    many = pipo_pb2.Resources(cpu=112.0, rss=2_000 * 1024 * 1024, procs=9)
    shown = details(running(host="ada", detached=True, resources=many), NOW)
    assert (
        "process         pid 71 on ada, detached; 112.0% of a core, 2,000.0 MiB, 9 processes"
        in shown
    )


def test_details_tell_what_is_left_of_a_lifetime() -> None:
    life = pipo_pb2.Lifetime(ttl="2h", ends_at=NOW + 4_320_000, remaining_ms=4_320_000)
    shown = details(running(lifetime=life), NOW)
    assert "lifetime        2h: 1h12m left (until 2026-10-10T22:27:00.000Z)" in shown
    life.remaining_ms, life.ends_at = 0, NOW
    shown = details(running(lifetime=life), NOW)
    assert "lifetime        2h: over (until 2026-10-10T21:15:00.000Z)" in shown
    assert not [line for line in details(running(), NOW) if line.startswith("lifetime")]


def test_details_tell_how_far_a_lifetime_has_come_and_by_what_it_ended() -> None:
    life = pipo_pb2.Lifetime(max_packets=5_000, until="stats.delivered > 9")
    found = running(lifetime=life)
    found.stats.accepted = 1_234
    assert "lifetime        1,234 of 5,000 packets; until stats.delivered > 9" in details(
        found, NOW
    )
    found.state, found.lifetime.reached = "completed", "max_packets"
    shown = next(line for line in details(found, NOW) if line.startswith("lifetime"))
    assert shown.split(maxsplit=1)[1].startswith("completed by max_packets; 1,234 of 5,000")
    found.lifetime.reached = "until"
    shown = next(line for line in details(found, NOW) if line.startswith("lifetime"))
    assert shown.endswith("  completed by until stats.delivered > 9; 1,234 of 5,000 packets")


def test_details_tell_the_port_that_its_input_serves_itself() -> None:
    assert "own port        8790" in details(running(listen=8790), NOW)
    assert not [line for line in details(running(), NOW) if line.startswith("own port")]
