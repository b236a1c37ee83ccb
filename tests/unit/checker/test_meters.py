from __future__ import annotations

from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo.telemetry.metrics import render
from pipo_checker.meters import Meters, families


def test_every_pipeline_has_its_counts_and_no_packet_is_named() -> None:
    people = Meters()
    people.attached = True
    people.held = ["x"] * 3
    people.looked(100, 0.002)
    people.concluded(Verdict.OUTCOME_PASSED)
    text = render(families({"people": people, "orders": Meters()})).decode()
    for line in (
        'pipo_checker_looks_total{pipeline="people"} 1.0',
        'pipo_checker_look_units_total{pipeline="people"} 100.0',
        'pipo_checker_look_duration_seconds_bucket{le="0.0025",pipeline="people"} 1.0',
        'pipo_checker_verdicts_total{pipeline="people",verdict="passed"} 1.0',
        'pipo_checker_verdicts_total{pipeline="orders",verdict="refused"} 0.0',
        'pipo_checker_verifications_held{pipeline="people"} 3.0',
        "pipo_checker_streams_attached 1.0",
    ):
        assert line in text.splitlines()


def test_without_pipelines_nothing_is_attached() -> None:
    text = render(families({})).decode()
    assert "pipo_checker_streams_attached 0.0" in text
    assert "pipo_checker_looks_total" not in text
