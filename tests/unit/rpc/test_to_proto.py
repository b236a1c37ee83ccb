from __future__ import annotations

from dataclasses import dataclass

import pytest

from pipo.errors import Finding
from pipo.rpc import from_proto, to_proto
from pipo.rpc.stubs import packet_pb2


@dataclass(frozen=True)
class Error:
    code: str
    message: str
    rule: str | None
    node: str
    attempts: int


@dataclass(frozen=True)
class Row:
    packet_id: str
    state: str
    node: str | None
    version: int
    attempt: int
    received_at: int
    updated_at: int
    error: Error | None


@dataclass(frozen=True)
class Page:
    packets: tuple[Row, ...]
    total: int
    next: str | None


ROW = Row("01J", "accepted", None, 1, 0, 5, 6, None)


def test_a_page_of_records_becomes_a_page_of_messages() -> None:
    failed = Row("01K", "dead_lettered", "keep", 1, 2, 5, 7, Error("c", "m", None, "keep", 2))
    made = to_proto.packet_page(Page((ROW, failed), 2, None), source="journal")
    assert [p.packet_id for p in made.packets] == ["01J", "01K"]
    assert not made.packets[0].HasField("node")
    assert not made.packets[0].HasField("error")
    assert made.packets[1].error == packet_pb2.PacketError(
        code="c", message="m", node="keep", attempts=2
    )
    assert made.source == "journal"
    assert not made.HasField("next")


def test_a_record_without_a_field_is_an_error_and_no_default() -> None:
    with pytest.raises(AttributeError, match="packet_id"):
        to_proto.message(packet_pb2.PacketRow, object())


def test_findings_go_both_ways() -> None:
    finding = Finding("P001", "error", "m", "h", 3, 7, "input.via")
    assert from_proto.finding(to_proto.diagnostic(finding)) == finding
