"""What REST and `--json` both say: what is absent is null."""

from __future__ import annotations

from pipo.access import answers
from pipo.rpc.stubs import packet_pb2, pipo_pb2


def test_a_pipeline_that_does_not_run_has_no_status_and_no_host() -> None:
    entry = answers.entry(pipo_pb2.PipelineInfo(name="x", state="stopped"))
    assert (entry["state"], entry["status"], entry["host"]) == ("stopped", None, None)
    assert (entry["file"], entry["host_id"]) == (None, None)


def test_an_event_of_the_pipeline_itself_has_no_packet() -> None:
    events = [
        packet_pb2.Event(seq=1, type="pipeline.started"),
        packet_pb2.Event(seq=2, packet_id="01J", type="packet.accepted"),
    ]
    page = answers.events(pipo_pb2.ListEventsReply(events=events, last_seq=2), "x")
    assert [event["packet_id"] for event in page["events"]] == [None, "01J"]
    assert page["last_id"] == "x:2"
