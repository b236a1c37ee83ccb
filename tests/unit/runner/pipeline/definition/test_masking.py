"""Secrets in what the journal holds for people to read."""

from __future__ import annotations

from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.definition.masking import masked_json, masked_notes

MASK = Redactor(["s3cr3t-value", 'two "words"']).text


def test_json_without_a_secret_keeps_its_bytes() -> None:
    raw = b'{"n":12345678901234567890, "x": [1.0]}'
    assert masked_json(raw, MASK) is raw


def test_secrets_are_masked_in_texts_and_keys() -> None:
    raw = b'{"url":"http://u:s3cr3t-value@h/","s3cr3t-value":[1,{"a":"s3cr3t-value"}],"n":1}'
    assert masked_json(raw, MASK) == b'{"url":"http://u:***@h/","***":[1,{"a":"***"}],"n":1}'


def test_a_secret_that_json_escapes_is_masked() -> None:
    assert masked_json(b'{"a":"it is two \\"words\\"."}', MASK) == b'{"a":"it is ***."}'


def test_notes_are_masked_in_their_details_only() -> None:
    notes = [("log", {"level": "info", "message": "token s3cr3t-value"}), ("seen", [1, None])]
    assert masked_notes(notes, MASK) == (
        ("log", {"level": "info", "message": "token ***"}),
        ("seen", [1, None]),
    )


def test_what_is_no_utf_8_becomes_null() -> None:
    assert masked_json(b'"\xff"', MASK) == b"null"
