"""Masking of secret values, also where they stand encoded (decision 43).

A value is looked for as it is, URL-encoded (each program leaves other characters as
they are), JSON-escaped, in Python's `repr`, and in base64 at any of its three alignments: `base64("user:" + value)` shares no
character with `base64(value)`. There the whole run of base64 characters is masked,
since its edges hold parts of the value.

In logs, errors, hints and answers a value is masked wherever it stands (`text`,
`value`). A packet's own data is masked only where a whole text equals a value
(`data`): otherwise a short secret would riddle what people sent.

What is made fit for people is made fit for UTF-8 as well: half of a surrogate pair, which an
expression can cut out of a text, stands as its escape. No journal or socket could take it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MASK = "***"
_BASE64_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
# What no URL escapes (RFC 3986 section 2.3).
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# A shorter stretch of base64 would be met by chance.
_BASE64_LENGTH_MIN = 6
# A key in several lines is masked line by line, as logs print it.
_LINE_LENGTH_MIN = 8
_HALVES = re.compile("[\ud800-\udfff]")


class Redactor:
    """Masks the given values; cheap when there are none."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._whole: frozenset[str] = frozenset()
        self._plain: re.Pattern[str] | None = None
        self._coded: re.Pattern[str] | None = None
        self._learn(values)

    def add(self, value: str) -> None:
        """Masks one more value from now on."""
        if value not in self._whole:
            self._learn((value,))

    def _learn(self, values: Iterable[str]) -> None:
        self._whole |= {value for value in values if value}
        plain = {form for value in self._whole for form in _plain_forms(value)}
        coded = {form for value in self._whole for form in _base64_cores(value)}
        urls = {value: _url_form(value) for value in self._whole}
        self._plain = _any_of({**{form: re.escape(form) for form in plain}, **urls})
        self._coded = _any_of({form: re.escape(form) for form in coded})

    def text(self, text: str) -> str:
        """`text` with every secret in it masked, as UTF-8 can hold it."""
        if not text.isascii() and _HALVES.search(text):
            text = text.encode("utf-8", "backslashreplace").decode()
        if self._plain is None:
            return text
        masked = self._plain.sub(MASK, text)
        return masked if self._coded is None else _mask_runs(masked, self._coded)

    def value(self, value: Any) -> Any:
        """A JSON-like value with every secret masked, in keys too."""
        return value if self._plain is None else mapped(value, self.text)

    def data(self, value: Any) -> Any:
        """A packet's data: texts that equal a secret are masked, nothing else."""
        return value if self._plain is None else mapped(value, self._equal)

    def _equal(self, text: str) -> str:
        return MASK if text in self._whole else text


def mapped(value: Any, mask: Callable[[str], str]) -> Any:
    """A JSON-like value with `mask` applied to each of its texts and keys."""
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {mask(k) if isinstance(k, str) else k: mapped(v, mask) for k, v in value.items()}
        case list() | tuple():
            return [mapped(item, mask) for item in value]
        case _:
            return value


def _plain_forms(value: str) -> set[str]:
    lines = {line.strip() for line in value.splitlines()} if "\n" in value else set()
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        # JSON writers may escape the slash.
        json.dumps(value)[1:-1].replace("/", "\\/"),
        repr(value)[1:-1],
        repr(value.encode("utf-8", "surrogatepass"))[2:-1],
        *(line for line in lines if len(line) >= _LINE_LENGTH_MIN),
    }


def _url_form(value: str) -> str:
    """A pattern for the value in a URL, whichever of its characters are escaped there."""
    # A lone surrogate has no URL form of its own; its bytes are escaped as they are.
    return "".join(_url_char(char) for char in value)


def _url_char(char: str) -> str:
    if char in _UNRESERVED:
        return re.escape(char)
    escaped = "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
    forms = [char, escaped, escaped.lower(), *("+" if char == " " else "")]
    return f"(?:{'|'.join(map(re.escape, forms))})"


def _base64_cores(value: str) -> set[str]:
    """What stays of the value's base64 whatever stands before and behind it."""
    raw = value.encode("utf-8", "surrogatepass")
    cores: set[str] = set()
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + raw).decode()
        unsure = (0, 2, 3)[offset]
        loose = (offset + len(raw)) % 3
        core = coded[unsure : len(coded) - (0, 3, 2)[loose]]
        cores |= {core, core.translate(str.maketrans("+/", "-_"))}
    return {core for core in cores if len(core) >= _BASE64_LENGTH_MIN}


def _mask_runs(text: str, cores: re.Pattern[str]) -> str:
    """`text` with every run of base64 characters that holds a core masked."""
    parts: list[str] = []
    done = 0
    for found in cores.finditer(text):
        if found.start() < done:
            continue
        start, end = found.span()
        while start > done and text[start - 1] in _BASE64_CHARS:
            start -= 1
        while end < len(text) and text[end] in _BASE64_CHARS:
            end += 1
        parts += (text[done:start], MASK)
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _any_of(patterns: Mapping[str, str]) -> re.Pattern[str] | None:
    """Any of the patterns, by the text that each stands for; the longest text comes first."""
    longest_first = sorted(patterns, key=lambda text: (-len(text), text))
    return re.compile("|".join(patterns[text] for text in longest_first)) if patterns else None
