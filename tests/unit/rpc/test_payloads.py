"""What of a packet's payloads goes out: all but secrets, and nothing where one is not known."""

from __future__ import annotations

from pipo.rpc import payloads
from pipo.rpc.stubs import packet_pb2
from pipo.telemetry.redaction import Redactor

ODD = b'{"n": 1.50, "whole":"s3cr3t","part":"a s3cr3t"}'


def trace() -> packet_pb2.Trace:
    step = packet_pb2.Step(step="a", data=b'"s3cr3t"')
    return packet_pb2.Trace(
        packet=packet_pb2.Packet(data=ODD, result=b'{"s3cr3t":1}', evidence=b"[1.0]"),
        steps=[packet_pb2.Step(step="input"), step],
        copies=[packet_pb2.Copy(branch="left", steps=[step])],
    )


def test_texts_that_equal_a_secret_are_masked_and_no_others() -> None:
    made = trace()
    payloads.mask(made, Redactor(["s3cr3t"]).data)
    assert made.packet.data == b'{"n":1.5,"whole":"***","part":"a s3cr3t"}'
    assert made.packet.result == b'{"***":1}'
    assert made.packet.evidence == b"[1.0]"
    assert made.steps[1].data == b'"***"'
    assert made.copies[0].steps[0].data == b'"***"'
    assert list(made.withheld) == []


def test_what_hides_nothing_keeps_its_bytes() -> None:
    made = trace()
    payloads.mask(made, Redactor(["another"]).data)
    assert made == trace()


def test_a_damaged_payload_stays_as_it_is() -> None:
    made = packet_pb2.Trace(packet=packet_pb2.Packet(data=b'{"a":', result=b'"s3cr3t"'))
    payloads.mask(made, Redactor(["s3cr3t"]).data)
    assert (made.packet.data, made.packet.result) == (b'{"a":', b'"***"')


def test_what_is_withheld_is_listed() -> None:
    made = trace()
    payloads.withhold(made)
    assert list(made.withheld) == [
        "packet.data",
        "packet.result",
        "packet.evidence",
        "steps[1].data",
        "copies[left].steps[0].data",
    ]
    assert b"s3cr3t" not in made.SerializeToString()
