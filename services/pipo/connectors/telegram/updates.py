"""What `getUpdates` brings, and where a bot stands in it. Pure.

Source: core.telegram.org/bots/api: getUpdates, Update, Message; telegram-exec-agents §1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pipo.clock import iso

# After a week without updates Telegram numbers them anew, from anywhere; what it has kept is a
# day old at most.
FRESH_MS = 6 * 24 * 3_600_000
# Names of files that have none of their own.
_NAMES = {
    "animation": "animation.mp4",
    "audio": "audio.mp3",
    "document": "document",
    "photo": "photo.jpg",
    "video": "video.mp4",
    "voice": "voice.ogg",
}
_YEAR_9999_S = 253_402_300_799


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message; `size` is what Telegram says, None when it says nothing."""

    kind: str
    id: str
    unique_id: str
    name: str
    mime_type: str | None
    size: int | None

    def data(self, path: str | None) -> dict[str, Any]:
        """The file as a packet holds it."""
        return {
            "kind": self.kind,
            "file_id": self.id,
            "name": self.name,
            "mime_type": self.mime_type,
            "size": self.size,
            "path": path,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """A message, from `sender` if one is named. `data` is a packet's, but for its file."""

    chat: int
    sender: int | None
    username: str | None
    data: Mapping[str, Any]
    file: File | None


@dataclass(frozen=True, slots=True)
class Update:
    """One update; `message` is None for every other kind."""

    id: int
    message: Message | None


@dataclass(frozen=True, slots=True)
class Position:
    """The next update of a bot, and when the last one was handled; none before the first."""

    next_id: int | None = None
    at_ms: int = 0

    @classmethod
    def of(cls, state: Mapping[str, str], bot: str) -> Self:
        """What an input's durable state says of a bot."""
        next_id, _, at_ms = state.get(_key(bot), "").partition("@")
        return cls(int(next_id), int(at_ms)) if next_id else cls()

    def state(self, bot: str) -> dict[str, str]:
        """The same as entries of durable state."""
        return {_key(bot): f"{self.next_id}@{self.at_ms}"}

    def offset(self, now_ms: int) -> int | None:
        """What to ask for; None asks for whatever Telegram keeps."""
        return self.next_id if now_ms - self.at_ms < FRESH_MS else None

    def is_new(self, update_id: int, now_ms: int) -> bool:
        """Whether an update was not handled yet."""
        offset = self.offset(now_ms)
        return offset is None or update_id >= offset

    def past(self, update_id: int, now_ms: int) -> Position:
        """Where it stands once an update is handled."""
        return Position(update_id + 1, now_ms)


def read(result: Any) -> list[Update] | None:
    """The updates of a result, by their ids; None for what is no list of them."""
    if not isinstance(result, list):
        return None
    found = [_update(one) for one in result if isinstance(one, dict)]
    return sorted((one for one in found if one is not None), key=lambda update: update.id)


def _key(bot: str) -> str:
    return f"offset:{bot}"


def _update(raw: Mapping[str, Any]) -> Update | None:
    update_id = _whole(raw.get("update_id"))
    return None if update_id is None else Update(update_id, _message(_object(raw.get("message"))))


def _message(raw: Mapping[str, Any]) -> Message | None:
    chat, sender = _object(raw.get("chat")), _object(raw.get("from"))
    chat_id = _whole(chat.get("id"))
    if chat_id is None:
        return None
    names = (_text(sender.get("first_name")), _text(sender.get("last_name")))
    data = {
        "message_id": _whole(raw.get("message_id")),
        "date": _date(raw.get("date")),
        "chat_id": chat_id,
        "chat_type": _text(chat.get("type")),
        "from": {
            "id": _whole(sender.get("id")),
            "username": _text(sender.get("username")),
            "name": " ".join(name for name in names if name) or None,
        },
        "text": _text(raw.get("text")) or _text(raw.get("caption")) or "",
        "file": None,
    }
    return Message(
        chat_id, _whole(sender.get("id")), _text(sender.get("username")), data, _file(raw)
    )


def _file(raw: Mapping[str, Any]) -> File | None:
    # An animation comes with a document that is the same file: it is asked for first.
    for kind in _NAMES:
        found = raw.get(kind)
        described = _largest(found) if isinstance(found, list) else _object(found)
        file_id = _text(described.get("file_id"))
        if file_id:
            return _described(kind, file_id, described)
    return None


def _described(kind: str, file_id: str, raw: Mapping[str, Any]) -> File:
    # A photo says neither its name nor its type: it is always a JPEG.
    name = _text(raw.get("file_name")) or _NAMES[kind]
    mime_type = _text(raw.get("mime_type")) or ("image/jpeg" if kind == "photo" else None)
    unique_id = _text(raw.get("file_unique_id")) or file_id
    return File(kind, file_id, unique_id, name, mime_type, _whole(raw.get("file_size")))


def _largest(sizes: Sequence[Any]) -> Mapping[str, Any]:
    """The largest of a photo's sizes; the last one of those that tell none."""
    described = [_object(size) for size in sizes]
    return max(
        reversed(described),
        key=lambda size: (_whole(size.get("width")) or 0) * (_whole(size.get("height")) or 0),
        default={},
    )


def _date(value: Any) -> str | None:
    seconds = _whole(value)
    return iso(seconds * 1000) if seconds is not None and 0 <= seconds <= _YEAR_9999_S else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
