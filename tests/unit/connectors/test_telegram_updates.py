"""What comes with getUpdates, as packets; where a bot stands; names of files on disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.connectors.telegram import updates
from pipo.connectors.telegram.fetching import name_of
from pipo.connectors.telegram.updates import FRESH_MS, File, Message, Position

CHAT = {"id": -100123, "type": "supergroup", "title": "Ops"}
SENDER = {"id": 5, "first_name": "Ada", "last_name": "Lovelace", "username": "ada"}


def message(**fields: Any) -> Message:
    raw = {"message_id": 1, "date": 0, "chat": CHAT, "from": SENDER, **fields}
    found = updates.read([{"update_id": 9, "message": raw}])
    assert found is not None
    assert found[0].message is not None
    return found[0].message


def test_a_message_and_its_data() -> None:
    found = message(text="hi")
    assert (found.chat, found.sender, found.username, found.file) == (-100123, 5, "ada", None)
    assert found.data == {
        "message_id": 1,
        "date": "1970-01-01T00:00:00.000Z",
        "chat_id": -100123,
        "chat_type": "supergroup",
        "from": {"id": 5, "username": "ada", "name": "Ada Lovelace"},
        "text": "hi",
        "file": None,
    }


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"text": "a"}, "a"),
        ({"caption": "b"}, "b"),
        ({"text": "a", "caption": "b"}, "a"),
        ({"text": 5}, ""),
        ({}, ""),
    ],
)
def test_the_text_is_always_one(fields: Any, text: str) -> None:
    assert message(**fields).data["text"] == text


@pytest.mark.parametrize("fields", [{"from": None}, {"from": {}}, {"from": {"id": "5"}}])
def test_a_message_from_nobody(fields: Any) -> None:
    found = message(**fields)
    assert found.sender is None
    assert found.data["from"] == {"id": None, "username": None, "name": None}


@pytest.mark.parametrize("date", [None, -1, 10**15, "0", True])
def test_a_date_that_is_none(date: Any) -> None:
    assert message(date=date).data["date"] is None


def sizes(*widths: int) -> list[dict[str, Any]]:
    return [
        {"file_id": f"p{w}", "file_unique_id": f"u{w}", "width": w, "height": w, "file_size": w}
        for w in widths
    ]


@pytest.mark.parametrize(
    ("fields", "file"),
    [
        ({"photo": sizes(90, 1280, 320)}, ("photo", "p1280", "photo.jpg", "image/jpeg", 1280)),
        (
            {"photo": [{"file_id": "a"}, {"file_id": "b"}]},
            ("photo", "b", "photo.jpg", "image/jpeg", None),
        ),
        ({"voice": {"file_id": "v", "mime_type": "audio/ogg"}}, ("voice", "v", "voice.ogg", "audio/ogg", None)),
        ({"video": {"file_id": "v"}}, ("video", "v", "video.mp4", None, None)),
        ({"audio": {"file_id": "v", "file_name": "a.flac"}}, ("audio", "v", "a.flac", None, None)),
        (
            {"document": {"file_id": "d"}, "animation": {"file_id": "d", "file_size": 3}},
            ("animation", "d", "animation.mp4", None, 3),
        ),
        ({"document": {"file_id": "d"}}, ("document", "d", "document", None, None)),
    ],
)  # fmt: skip
def test_a_file_and_what_is_said_of_it(fields: Any, file: tuple[Any, ...]) -> None:
    found = message(**fields).file
    assert found is not None
    assert (found.kind, found.id, found.name, found.mime_type, found.size) == file
    assert list(found.data("/f")) == ["kind", "file_id", "name", "mime_type", "size", "path"]


@pytest.mark.parametrize("fields", [{"photo": []}, {"document": {}}, {"voice": 5}, {"sticker": {}}])
def test_no_file(fields: Any) -> None:
    assert message(**fields).file is None


def test_updates_come_in_order_and_others_are_known_by_their_id() -> None:
    raw = [
        {"update_id": 3, "edited_message": {}},
        {"update_id": 1, "message": {"text": "no chat"}},
        {"update_id": 2, "message": {"chat": {"id": 1}}},
        {"message": {"chat": {"id": 1}}},
        {"update_id": "4"},
        5,
    ]
    found = updates.read(raw)
    assert found is not None
    assert [(one.id, one.message is None) for one in found] == [(1, True), (2, False), (3, True)]
    for nothing in ("{}", "null", '"x"'):
        assert updates.read(json.loads(nothing)) is None


def test_where_a_bot_stands() -> None:
    start = Position.of({}, "5")
    assert start.offset(10) is None
    assert start.is_new(1, 10)
    there = start.past(41, 1000)
    assert Position.of(there.state("5"), "5") == there
    assert Position.of(there.state("5"), "6") == Position()
    assert there.offset(2000) == 42
    assert [there.is_new(n, 2000) for n in (41, 42)] == [False, True]
    assert there.offset(1000 + FRESH_MS) is None
    assert there.is_new(1, 1000 + FRESH_MS)
    assert there.offset(0) == 42


@pytest.mark.parametrize(
    ("unique", "name", "made"),
    [
        ("u", "plan.pdf", "u-plan.pdf"),
        ("u", "../../etc/passwd", "u-.._.._etc_passwd"),
        ("../u", "a\\b\0c\nd", "___u-a_b_c_d"),
        ("u", "", "u-"),
        ("u", "résumé ☃.txt", "u-résumé ☃.txt"),
        ("u", "a\ud800b", "u-a?b"),
        ("u" * 99, "x" * 300 + ".jpeg", "u" * 64 + "-" + "x" * 155 + ".jpeg"),
        ("u", "é" * 300, "u-" + "é" * 80),
        ("u", "x" * 100 + "." + "y" * 100, "u-" + "x" * 100 + "." + "y" * 59),
    ],
)
def test_a_name_on_disk(unique: str, name: str, made: str) -> None:
    assert name_of(File("document", "f", unique, name, None, None)) == made
