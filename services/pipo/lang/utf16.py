"""Text as JavaScript counts it: by UTF-16 units.

Python counts characters. Both agree on ASCII, which is looked for first; beyond
it, a character above U+FFFF is two units, and half of one is a text of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pipo.lang.faults import LanguageError

TEXT_LIMIT: Final = 128 * 1024 * 1024
"""No text that an expression joins or prints is longer than the largest packet (decision 40).

`json(json(…))` doubles its backslashes at each step, and `[data, data, …]` prints
the same data over and over: a short expression could fill the memory.
"""

SURROGATE = re.compile("[\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def concat(parts: Iterable[str]) -> str:
    """Texts joined; halves of a surrogate pair that meet become their character.

    Raises: LanguageError (runtime), beyond TEXT_LIMIT characters.
    """
    joined = "".join(bounded(parts))
    if joined.isascii() or not _HALVES.search(joined):
        return joined
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def bounded(parts: Iterable[str]) -> list[str]:
    """Texts that are to be joined, as long as they are no more than TEXT_LIMIT together."""
    kept = []
    count = 0
    for part in parts:
        kept.append(part)
        count += len(part)
        if count > TEXT_LIMIT:
            raise LanguageError("runtime", f"a text would have over {TEXT_LIMIT:,} characters")
    return kept


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    if text.isascii():
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)


def unit_at(text: str, index: int) -> str | None:
    """One unit of a text; None beyond its ends."""
    if text.isascii():
        return text[index] if 0 <= index < len(text) else None
    raw = text.encode("utf-16-le", "surrogatepass")
    if not 0 <= index < len(raw) // 2:
        return None
    return raw[2 * index : 2 * index + 2].decode("utf-16-le", "surrogatepass")


def text_below(left: str, right: str) -> bool:
    """Whether `left` sorts before `right`, by UTF-16 units."""
    if left.isascii() or right.isascii():
        return left < right
    return left.encode("utf-16-be", "surrogatepass") < right.encode("utf-16-be", "surrogatepass")


def text_within(needle: str, text: str) -> bool:
    """Whether a text holds another, by UTF-16 units."""
    if needle in text:
        return True
    if text.isascii() or not SURROGATE.search(needle):
        return False
    raw = text.encode("utf-16-le", "surrogatepass")
    wanted = needle.encode("utf-16-le", "surrogatepass")
    at = raw.find(wanted)
    while at > 0 and at % 2:
        at = raw.find(wanted, at + 1)
    return at >= 0
