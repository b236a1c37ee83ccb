"""Keeps secrets out of what the journal holds for people to read: notes, results, evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pipo.journal.interventions import BY_CHARS
from pipo.payload import decode, encode
from pipo.telemetry.redaction import mapped

Mask = Callable[[str], str]
Note = tuple[str, Any]
# Who it was, where nobody says so.
BY_DEFAULT: Final = "api"


def masked_json(raw: bytes, mask: Mask) -> bytes:
    """JSON with every secret masked in its texts; the same bytes when it holds none.

    What is no UTF-8 (another process sent it) becomes null.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return b"null"
    return raw if mask(text) == text else encode(mapped(decode(raw), mask))


def masked_notes(notes: Sequence[Note], mask: Mask) -> tuple[Note, ...]:
    """A step's notes with every secret masked in their details."""
    return tuple((type_, mapped(detail, mask)) for type_, detail in notes)


def signature(by: str, mask: Mask) -> str:
    """Who asked, as the journal keeps it: masked before it is cut, and never empty."""
    return mask(by or BY_DEFAULT)[:BY_CHARS]
