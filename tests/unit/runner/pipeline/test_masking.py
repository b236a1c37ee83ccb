"""What the journal keeps for people holds no secret (decision 43)."""

from __future__ import annotations

from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.masking import masked_json, masked_notes

MASK = Redactor(['pa"ss', "1"]).text


def test_evidence_without_a_secret_is_the_same_bytes() -> None:
    raw = b'{"path": "/a/b",  "n": 2}'
    assert masked_json(raw, MASK) is raw
    assert masked_json(b"", MASK) == b""


def test_a_secret_is_masked_in_texts_and_keys_alone() -> None:
    raw = b'{"sql":"SELECT \'pa\\"ss\'","pa\\"ss":[1,"x1"]}'
    assert masked_json(raw, MASK) == b'{"sql":"SELECT \'***\'","***":[1,"x***"]}'


def test_notes_are_masked_in_their_details() -> None:
    notes = [("log", {"level": "info", "message": 'key pa"ss'}), ("mine", None)]
    assert masked_notes(notes, MASK) == (
        ("log", {"level": "info", "message": "key ***"}),
        ("mine", None),
    )
