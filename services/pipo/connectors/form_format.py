"""HTML forms: urlencoded, and multipart with uploads (WHATWG URL; RFC 7578).

A field that stands once is its value; one that repeats is the list of its values,
in order (decision 32). An upload is `{filename, content_type, size, base64}`; its
file name is data, and nothing is ever written under it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from pipo.errors import BadRequest

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

_PARAMETER = re.compile(r';\s*([\w!#$%&\'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]++|\\.)*+)"|([^;\s"]*))')
_EXTENDED = re.compile(r"(utf-8|iso-8859-1)'[^']*'(.*)", re.I | re.S)
_ESCAPE = re.compile(r'\\(["\\])')
_BOUNDARY_MAX = 70
_HEAD_BYTES_MAX = 16 * 1024
FIELDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    value: Any


def fields(body: bytes, content_type: str) -> dict[str, Any]:
    """The fields of a form. Raises: BadRequest."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("", URLENCODED):
        return _gathered(_urlencoded(body))
    if kind == MULTIPART:
        return _gathered(_multipart(body, _parameters(content_type).get("boundary", "")))
    raise BadRequest(
        f"a form cannot have the content type {kind!r}", hint=f"send {URLENCODED} or {MULTIPART}"
    )


def _gathered(parts: Iterable[_Part]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for count, part in enumerate(parts, 1):
        if count > FIELDS_MAX:
            raise _too_many()
        found.setdefault(part.name, []).append(part.value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _urlencoded(body: bytes) -> Iterator[_Part]:
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        text = _utf8(body, "the form")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except UnicodeDecodeError:
        raise BadRequest(
            "the form holds percent-encoded bytes that are no UTF-8", hint="encode it as UTF-8"
        ) from None
    except ValueError:
        raise _too_many() from None
    for name, value in pairs:
        yield _Part(name, value)


def _multipart(body: bytes, boundary: str) -> Iterator[_Part]:
    if not boundary or len(boundary) > _BOUNDARY_MAX or not boundary.isascii():
        raise BadRequest(
            "the content type names no boundary",
            hint=f"let your HTTP client set the header: {MULTIPART}; boundary=…",
        )
    mark = b"--" + boundary.encode("ascii")
    # A boundary begins a line; the body's own start counts as one.
    text = b"\r\n" + body
    end = text.find(b"\r\n" + mark)
    if end < 0:
        raise BadRequest(
            "the body does not hold the boundary that its content type names",
            hint="send each part after a line of `--` and the boundary",
        )
    while True:
        start = end + 2 + len(mark)
        if text.startswith(b"--", start):
            return
        end = text.find(b"\r\n" + mark, start)
        if end < 0:
            raise BadRequest(
                "the multipart body ends without its closing boundary", hint="send the whole body"
            )
        # Blanks may follow a boundary on its line (RFC 2046 section 5.1.1).
        after, line_end, part = text[start:end].partition(b"\r\n")
        if not line_end or after.strip(b" \t"):
            raise BadRequest("a boundary is followed by other text", hint="check the line ends")
        yield _part(part)


def _part(part: bytes) -> _Part:
    if part.startswith(b"\r\n"):
        head, content = b"", part[2:]
    else:
        head, ended, content = part.partition(b"\r\n\r\n")
        if not ended:
            raise BadRequest(
                "a part has no blank line after its headers", hint="check the line ends"
            )
    if len(head) > _HEAD_BYTES_MAX:
        raise BadRequest(
            f"a part has headers of more than {_HEAD_BYTES_MAX // 1024} KiB",
            hint="put what is long into the part's content",
        )
    headers = _headers(head)
    disposition = headers.get("content-disposition", "")
    parameters = _parameters(disposition)
    if not disposition.lower().startswith("form-data") or "name" not in parameters:
        raise BadRequest(
            "a part names no form field",
            hint='each part needs `Content-Disposition: form-data; name="…"`',
        )
    name = parameters["name"]
    filename = parameters.get("filename")
    if filename is None and "filename*" in parameters:
        filename = _extended(parameters["filename*"])
    if filename is None:
        return _Part(name, _utf8(content, f"the field {name!r}"))
    upload = {
        "filename": filename,
        "content_type": headers.get("content-type", "application/octet-stream"),
        "size": len(content),
        "base64": base64.b64encode(content).decode("ascii"),
    }
    return _Part(name, upload)


def _headers(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _utf8(head, "a part's header").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


def _parameters(header: str) -> dict[str, str]:
    """The parameters of a header, by lower-case name; the first of a name counts.

    Browsers send a quote in a name as %22 and line ends as %0D%0A (RFC 7578 section 5.1).
    """
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(header):
        value = _ESCAPE.sub(r"\1", quoted) if quoted else plain
        for escape, sign in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
            value = value.replace(escape, sign)
        found.setdefault(name.lower(), value)
    return found


def _extended(value: str) -> str:
    """A name with its charset (RFC 8187), which forms should not have and some clients send."""
    found = _EXTENDED.fullmatch(value)
    try:
        if found is not None:
            return unquote_to_bytes(found[2]).decode(found[1])
    except UnicodeDecodeError:
        pass
    raise BadRequest(
        f"the file name {value[:100]!r} cannot be read", hint='send it as filename="…" in UTF-8'
    )


def _too_many() -> BadRequest:
    return BadRequest(
        f"the form holds more than {FIELDS_MAX:,} fields", hint="send fewer, or set `format: json`"
    )


def _utf8(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{what} is not UTF-8 text (byte {error.start})", hint="send it as UTF-8"
        ) from None
