"""CSV as spreadsheets write it, and nothing looser (RFC 4180; edges 88, 89).

The first pass judges every record and keeps none; only a body that is sound
throughout gives packets, one at a time, so a large one is never in memory twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipo.errors import BadRequest

# A field: quoted (doubled quotes inside), or plain up to the next separator. Nothing is given back
# (`++`): what could be would be kept for each doubled quote, a hundred bytes of memory for each.
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')
_PLAIN = re.compile(r'[^",\r\n]*')
_LINE_END = re.compile(r"\r\n|\r|\n")

_HEADER_HINT = "the first line names each column once"
_QUOTE_HINT = 'put the whole field in quotes, and double each quote inside: "say ""hi"""'


def records(text: str) -> Iterator[dict[str, str]]:
    """One object per record, every value a text.

    Raises: BadRequest, naming the line, at the call and not later.
    """
    text = text.removeprefix("\ufeff")
    _refuse_nul(text)
    rows = _rows(text)
    header_line, header = next(rows, (1, []))
    _judge_header(header_line, header)
    count = 0
    for line, row in rows:
        count += 1
        if len(row) != len(header):
            raise BadRequest(
                f"line {line} has {len(row)} values, and the header names {len(header)} columns",
                hint="give every record one value per column; an empty one may be left empty",
            )
    if not count:
        raise BadRequest("the csv holds a header and no record", hint="send at least one record")
    return _made(text, header)


def first_row(text: str) -> tuple[list[str], int]:
    """The fields of the first row that is not blank, and where the text goes on behind it.

    Raises: BadRequest, naming the line.
    """
    start = len(text) - len(text.removeprefix("\ufeff").lstrip("\r\n"))
    fields: list[str] = []
    position, line = start, 1
    while True:
        field, position, line = _field(text, position, line)
        fields.append(field)
        if not text.startswith(",", position):
            break
        position += 1
    end = _LINE_END.match(text, position)
    return fields, end.end() if end else position


def _made(text: str, header: list[str]) -> Iterator[dict[str, str]]:
    rows = _rows(text)
    next(rows)
    for _, row in rows:
        yield dict(zip(header, row, strict=True))


def _refuse_nul(text: str) -> None:
    """RFC 4180 has no control signs in a field; a NUL is how UTF-16 without its mark reads."""
    found = text.find("\0")
    if found >= 0:
        line = 1 + sum(1 for _ in _LINE_END.finditer(text, 0, found))
        raise BadRequest(
            f"line {line} holds a NUL, which no csv does: the text is perhaps UTF-16, not UTF-8",
            hint="save it as CSV UTF-8",
        )


def _judge_header(line: int, header: list[str]) -> None:
    if not header:
        raise BadRequest("the csv is empty", hint=_HEADER_HINT)
    seen: set[str] = set()
    for position, name in enumerate(header, 1):
        if not name:
            raise BadRequest(f"line {line}: column {position} has no name", hint=_HEADER_HINT)
        if name in seen:
            raise BadRequest(f"line {line}: the column {name!r} stands twice", hint=_HEADER_HINT)
        seen.add(name)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every row that is not blank."""
    if '"' in text:
        yield from _rows_with_quotes(text)
        return
    start, line = 0, 1
    for end in _LINE_END.finditer(text):
        if end.start() > start:
            yield line, text[start : end.start()].split(",")
        start, line = end.end(), line + 1
    if start < len(text):
        yield line, text[start:].split(",")


def _rows_with_quotes(text: str) -> Iterator[tuple[int, list[str]]]:
    position, line = 0, 1
    while position < len(text):
        if end := _LINE_END.match(text, position):
            position, line = end.end(), line + 1
            continue
        first_line, row = line, []
        while True:
            field, position, line = _field(text, position, line)
            row.append(field)
            if position == len(text) or text[position] != ",":
                break
            position += 1
        yield first_line, row
        if end := _LINE_END.match(text, position):
            position, line = end.end(), line + 1


def _field(text: str, position: int, line: int) -> tuple[str, int, int]:
    """A field's value, the position of what ends it, and the line that is on."""
    if text.startswith('"', position):
        quoted = _QUOTED.match(text, position)
        if quoted is None:
            raise BadRequest(f"line {line}: a quote is not closed", hint=_QUOTE_HINT)
        position = quoted.end()
        if position < len(text) and text[position] not in ",\r\n":
            raise BadRequest(f"line {line}: text follows a closing quote", hint=_QUOTE_HINT)
        value = quoted[1]
        line += sum(1 for _ in _LINE_END.finditer(value))
        return value.replace('""', '"'), position, line
    plain = _PLAIN.match(text, position)
    assert plain is not None, "the pattern matches nothing as well"
    if text.startswith('"', plain.end()):
        raise BadRequest(f"line {line}: a quote stands inside a plain field", hint=_QUOTE_HINT)
    return plain[0], plain.end(), line
