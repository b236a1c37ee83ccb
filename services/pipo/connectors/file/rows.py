"""CSV rows under the columns of the file they go to (RFC 4180, edge 180). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pipo.connectors.contract import WriteFailed
from pipo.connectors.csv_format import first_row
from pipo.errors import BadRequest

HEADER_BYTES_MAX = 64 * 1024

# A byte order mark in the first cell would be taken for the file's own.
_QUOTED = re.compile('[",\r\n]|^\ufeff')


class Rows:
    """Makes rows for one file; the columns are read from its first line, once while that stays."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._header = b""
        self._columns: Sequence[str] = ()
        self._line_end = "\n"

    def begin(self, head: bytes, first: Mapping[str, str]) -> bytes:
        """What an append starts with: the header of a new file, made from the first row.

        `head` is how the file begins, up to HEADER_BYTES_MAX + 1 bytes.
        Raises: WriteFailed, for a first line that names no columns.
        """
        if not head.strip(b"\r\n\xef\xbb\xbf"):
            self._columns, self._line_end = list(first), "\n"
            self._header = row(self._columns, self._line_end)
            return self._header
        if not self._header or not head.startswith(self._header):
            self._read(head)
        return b""

    def text(self, cells: Mapping[str, str]) -> bytes:
        """One row: missing cells are empty, cells without a column are left out.

        Raises: WriteFailed, when that leaves nothing of data that is no object.
        """
        if cells.keys() == {"value"} and "value" not in self._columns:
            raise WriteFailed(
                f"{self._path} has no column 'value' for data that is not an object",
                hint="its columns are those of the first packet; make an object of the data, "
                "or write it to another file",
            )
        return row((cells.get(column, "") for column in self._columns), self._line_end)

    def _read(self, head: bytes) -> None:
        try:
            columns, length = first_row(head.decode("utf-8", "surrogateescape"))
        except BadRequest as error:
            raise WriteFailed(
                f"the columns of {self._path} cannot be read: {error.message}",
                hint="mend its first line, or move the file away",
            ) from None
        raw = head.decode("utf-8", "surrogateescape")[:length].encode("utf-8", "surrogateescape")
        if len(raw) > HEADER_BYTES_MAX:
            raise WriteFailed(
                f"the first line of {self._path} is longer than {HEADER_BYTES_MAX} bytes",
                hint="is it a CSV file? move it away, or write to another one",
            )
        self._columns = columns
        # Without a line break another file may begin alike and go on differently.
        self._header = raw if raw.endswith((b"\n", b"\r")) else b""
        self._line_end = "\r\n" if raw.endswith(b"\r\n") else "\n"


def row(cells: Iterable[str], line_end: str = "\n") -> bytes:
    text = ",".join(map(_cell, cells))
    # A lone empty cell would be a blank line, which readers pass over.
    return ((text or '""') + line_end).encode()


def _cell(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
