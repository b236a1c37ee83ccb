"""What is sent to the Bot API, and what it answers. Pure.

Source: core.telegram.org/bots/api: sendMessage, sendPhoto, sendDocument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipo.connectors.contract import Refused, RetryAfter, WriteFailed, WriteUnit
from pipo.connectors.file.records import text
from pipo.connectors.http.sending import Answer
from pipo.connectors.telegram import answers
from pipo.connectors.telegram.answers import Failed

TEXT_UNITS, CAPTION_UNITS = 4096, 1024
_FILE_KINDS = {"photo": "sendPhoto", "document": "sendDocument"}


@dataclass(frozen=True, slots=True)
class Message:
    """A call of the Bot API. `upload` is the field of a local file and its path."""

    method: str
    fields: Mapping[str, Any]
    upload: tuple[str, str] | None = None


def message(unit: WriteUnit) -> Message:
    """What a unit's settings say.

    Raises: Refused, for a message that no chat could get.
    """
    settings = unit.settings
    files = [kind for kind in _FILE_KINDS if settings.get(kind)]
    if len(files) > 1:
        raise Refused("a message has a photo or a document, not both", hint="leave one of them out")
    words = text(settings.get("text", unit.data)).decode()
    fields: dict[str, Any] = {"chat_id": _chat(unit)}
    if settings.get("parse_mode"):
        fields["parse_mode"] = settings["parse_mode"]
    if not files:
        return Message("sendMessage", {**fields, "text": cut(words, TEXT_UNITS)})
    (kind,) = files
    fields["caption"] = cut(words, CAPTION_UNITS)
    where = str(settings[kind])
    if where.startswith(("http://", "https://")):
        return Message(_FILE_KINDS[kind], {**fields, kind: where})
    return Message(_FILE_KINDS[kind], fields, (kind, where))


def cut(words: str, units: int) -> str:
    """The start of a text, at most `units` as Telegram counts them: UTF-16 units."""
    if len(words) <= units // 2:
        return words
    return words.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")


def outcome(
    sent: Message, answer: Answer, *, mask: Callable[[str], str], now_ms: int
) -> Mapping[str, Any] | WriteFailed | RetryAfter:
    """The result of a call, or why there is none."""
    found = answers.read(answer, mask=mask, now_ms=now_ms)
    if isinstance(found, Failed):
        return _failure(sent, found)
    result = found.value
    if not isinstance(result, dict) or "message_id" not in result:
        return _failure(sent, Failed(answer.status, "it names no message"))
    chat = result.get("chat")
    there = chat.get("id") if isinstance(chat, dict) else None
    given = sent.fields["chat_id"]
    return {"chat_id": given if there is None else there, "message_id": result["message_id"]}


def _failure(sent: Message, failed: Failed) -> WriteFailed | RetryAfter:
    message = f"{sent.method} was answered {failed.status}: {failed.why}"
    if failed.status == 429 and failed.pause_s is not None:
        hint = f"it asks for a pause of {failed.pause_s:g} s"
        return RetryAfter(message, seconds=failed.pause_s, hint=hint)
    return WriteFailed(message, hint=failed.hint)


def _chat(unit: WriteUnit) -> int | str:
    chat = unit.settings.get("chat_id")
    if chat is None and unit.trigger == "telegram":
        return unit.source
    if isinstance(chat, bool) or not isinstance(chat, (int, str)) or chat == "":
        raise Refused(
            "the message has no chat to go to"
            if chat in (None, "")
            else f"`chat_id` renders to {str(chat)[:60]!r}, which is no chat",
            hint="set `chat_id`; only packets of a telegram input bring their own",
        )
    return chat
