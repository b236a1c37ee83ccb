from __future__ import annotations

import json

import pytest

from pipo.rpc.stubs import checker_pb2, packet_pb2, pipeline_pb2, pipo_pb2
from pipo.rpc.to_json import dumps, to_json, to_value


def test_payload_integers_keep_every_digit_and_long_integers_stay_numbers() -> None:
    packet = packet_pb2.Packet(
        packet_id="01J", received_at=2**53 + 1, data=b'{"n":123456789012345678901234567890}'
    )
    text = to_json(packet)
    assert b'"data":{"n":123456789012345678901234567890}' in text
    assert b'"received_at":9007199254740993' in text


def test_absent_optionals_messages_and_empty_payloads_are_null() -> None:
    packet = json.loads(to_json(packet_pb2.Packet(packet_id="01J")))
    assert packet["data"] is None
    assert packet["error"] is None
    assert packet["node"] is None
    assert packet["attempt"] == 0
    assert json.loads(to_json(checker_pb2.Verdict(id="x")))["evidence"] is None


def test_keys_stand_in_the_order_of_the_contract() -> None:
    keys = list(json.loads(to_json(packet_pb2.Trace())))
    assert keys == [f.name for f in packet_pb2.Trace.DESCRIPTOR.fields]


def test_repeated_nested_maps_and_enums() -> None:
    series = pipeline_pb2.MetricSeries(name="x", labels={"node": 'a"b'}, value=float("inf"))
    made = json.loads(to_json(pipeline_pb2.MetricsReply(series=[series])))
    assert made["series"][0] == {
        "name": "x",
        "labels": {"node": 'a"b'},
        "value": None,
        "histogram": None,
    }


@pytest.mark.parametrize("number", checker_pb2.Verdict.Outcome.values())
def test_every_enum_value_becomes_a_word(number: int) -> None:
    verdict = checker_pb2.Verdict(outcome=number)  # type: ignore[arg-type]
    assert json.loads(to_json(verdict))["outcome"] in {"unspecified", "passed", "failed", "refused"}


def test_values_mix_with_plain_ones() -> None:
    event = packet_pb2.Event(seq=1, detail=b'{"a": 1}')
    assert json.loads(dumps({"events": [to_value(event)], "last_id": "x:1"}))["events"][0][
        "detail"
    ] == {"a": 1}


def test_engine_is_flat() -> None:
    assert json.loads(to_json(pipo_pb2.Engine(ready=True)))["ready"] is True
