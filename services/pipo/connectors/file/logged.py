"""One file that CSV rows or lines of text are appended to, with its side file of keys.

An append is announced in the side file, appended, and logged as done (`keylog`). Two
syncs stand between: the announcement is on disk before the first byte of the append,
and the append before it counts. So whatever a crash or a power cut leaves is one of:

    nothing announced        the file is as it was
    announced, no bytes      logged as aborted; the unit is written again
    announced, some bytes    cut back, then the same
    announced, other bytes   the same (the CRC tells)
    announced, all bytes     logged as done

and it is mended when the file is opened next. A `done` needs no sync of its own. Where
somebody else cut the last record of a finished append, its front is cut off too.

Keys are looked up as in `appending`, in the side file. Both files are locked for the
time of one append, so that two pipelines may share them. All methods run on the
file's own thread.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from pipo.connectors.contract import WriteFailed
from pipo.connectors.destination import Identity, cannot_write, make_folder, sync_folder
from pipo.connectors.file import keylog, locking, lookup, plain
from pipo.connectors.file.keylog import Begin
from pipo.connectors.file.lookup import Place, result
from pipo.connectors.file.records import Record
from pipo.connectors.file.rows import HEADER_BYTES_MAX, Rows
from pipo.connectors.file.unsure import Unsure


class Warn(Protocol):
    def __call__(self, message: str, **keys: object) -> None: ...


class LoggedFile:
    """A file by its path; it is opened when it is first used.

    `mark` is the size of its side file as the journal noted it last; `rows` makes the
    rows of a CSV file.
    """

    def __init__(self, path: str, mark: int, *, rows: Rows | None, warn: Warn) -> None:
        self._path = path
        self._log_path = path + keylog.SUFFIX
        self._mark = mark
        self._rows = rows
        self._warn = warn
        self._file: int | None = None
        self._log: int | None = None
        self._identities: tuple[Identity, Identity] | None = None
        self._unsure = Unsure()
        self._size = 0
        self._log_size = -1
        self._ends_line = True
        self._keys: dict[str, Place] | None = None

    @property
    def marks(self) -> Mapping[str, int]:
        """The side file's size after the last append that is logged as done."""
        return {self._log_path: self._mark}

    def write(
        self, records: Sequence[Record], *, atomic: bool
    ) -> list[Mapping[str, Any] | WriteFailed]:
        """Per record, in order, where it went, that it was there already, or why it fits not.

        Durable: on return what was written survives a power cut.
        Raises: WriteFailed, when nothing was written; with `atomic` also for a single misfit.
        """
        try:
            with self._alone():
                found = self._look_up(records)
                fresh = lookup.fresh(records, found)
                head, texts, misfits = self._rendered(list(fresh.values()))
                if misfits and atomic:
                    raise next(iter(misfits.values()))
                made = self._places(head, texts)
                if texts:
                    self._extend(head, texts)
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error
        return [
            misfits.get(record.key) or result(self._path, record.key, found, made)
            for record in records
        ]

    def mend(self) -> None:
        """Cuts off what a crash left of an append. Makes no file."""
        if not os.path.exists(self._log_path):
            return
        try:
            with self._alone():
                pass
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        handles = self._file, self._log
        self._file = self._log = self._keys = None
        self._log_size = -1
        for handle in handles:
            plain.close_quietly(handle)

    # ── opening ──────────────────────────────────────────────────────────────

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Both files as their paths mean them now, locked, and mended after a crash."""
        while True:
            self._open_what_changed()
            log = self._log_fd
            locking.take(log, self._log_path)
            if self._is_current():
                break
            self.close()
        try:
            self._refresh()
            yield
        finally:
            with suppress(OSError):
                locking.give_back(log)

    def _is_current(self) -> bool:
        return plain.is_at(self._file, self._path) and plain.is_at(self._log, self._log_path)

    def _open_what_changed(self) -> None:
        if self._is_current():
            return
        self.close()
        make_folder(self._path)
        self._file = plain.open_to_append(self._path)
        self._log = plain.open_to_append(self._log_path)
        # Names are on disk before there is content, so only empty files may lack them.
        if not os.fstat(self._file).st_size or not os.fstat(self._log).st_size:
            sync_folder(Path(self._path).parent)

    def _refresh(self) -> None:
        """Takes in what others did since our last append, and mends what they left unfinished."""
        now = os.fstat(self._file_fd), os.fstat(self._log_fd)
        identities = plain.identity_of(now[0]), plain.identity_of(now[1])
        is_known = identities == self._identities
        if now[1].st_size != self._log_size:
            self._keys = None
            self._mend()
            self._note_unsure(is_known)
        elif now[0].st_size < self._size or not is_known:
            self._keys = None
            self._mend()
        self._identities = identities
        size = os.fstat(self._file_fd).st_size
        if size != self._size or not is_known:
            self._ends_line = plain.ends_line(self._file_fd, size)
        self._size = size

    def _note_unsure(self, is_known: bool) -> None:
        """Where the side file may tell of appends that the journal does not know."""
        size = os.fstat(self._log_fd).st_size
        if self._identities is None and self._mark <= size:
            self._unsure.forget(self._mark, size)
        elif not is_known or size < self._log_size:
            self._unsure.forget(0, size)
        elif self._log_size >= 0:
            self._unsure.add(self._log_size, size)
        else:
            self._unsure.add(min(self._mark, size), size)
        self._log_size = size

    def _mend(self) -> None:
        whole = keylog.whole_bytes(self._log_fd)
        if whole != os.fstat(self._log_fd).st_size:
            os.ftruncate(self._log_fd, whole)
        append = keylog.last(self._log_fd)
        if append is None:
            return
        size, begin = os.fstat(self._file_fd).st_size, append.begin
        torn = keylog.torn_at(append, self._file_fd)
        if torn is not None:
            self._cut_off(torn, size)
        elif append.is_open and size >= begin.place.end:
            if begin.crc is None or begin.crc == keylog.crc_of(self._file_fd, begin.place):
                os.fdatasync(self._file_fd)
                plain.write_all(self._log_fd, keylog.done_line(begin))
                return
            if size == begin.place.end:
                self._cut_off(begin.place.offset, size)
        if append.is_open:
            plain.write_all(self._log_fd, keylog.abort_line(begin))

    def _cut_off(self, start: int, size: int) -> None:
        os.ftruncate(self._file_fd, start)
        # Before the log says so, or the next append would stand behind the remains.
        os.fsync(self._file_fd)
        self._warn(
            "cut off what a crash left of an append",
            path=self._path,
            offset=start,
            length=size - start,
        )

    @property
    def _file_fd(self) -> int:
        assert self._file is not None, "a file is used before it is open"
        return self._file

    @property
    def _log_fd(self) -> int:
        assert self._log is not None, "a side file is used before it is open"
        return self._log

    # ── looking up ───────────────────────────────────────────────────────────

    def _look_up(self, records: Sequence[Record]) -> dict[str, Place]:
        anywhere, recently = lookup.sought(records)
        found: dict[str, Place] = {}
        if anywhere:
            found |= self._look_anywhere(anywhere)
        if recently:
            for span in self._unsure.spans(self._log_size):
                found |= self._logged(recently, span.start, span.end)
        return found

    def _look_anywhere(self, keys: set[str]) -> dict[str, Place]:
        if self._keys is None:
            self._keys = keylog.places(self._log_fd, 0, self._log_size, within=self._size)
        if self._keys is None:
            return self._logged(keys, 0, self._log_size)
        return {key: self._keys[key] for key in keys if key in self._keys}

    def _logged(self, keys: set[str], start: int, end: int) -> dict[str, Place]:
        return keylog.places(self._log_fd, start, end, within=self._size, keys=keys) or {}

    # ── appending ────────────────────────────────────────────────────────────

    def _rendered(
        self, fresh: Sequence[Record]
    ) -> tuple[bytes, dict[str, bytes], dict[str, WriteFailed]]:
        """What the append starts with, the bytes of each key, and what fits not into the file."""
        head = b"" if self._ends_line else b"\n"
        if self._rows is None or not fresh:
            return head, {record.key: record.text for record in fresh}, {}
        first = fresh[0].cells or {}
        head += self._rows.begin(os.pread(self._file_fd, HEADER_BYTES_MAX + 1, 0), first)
        texts: dict[str, bytes] = {}
        misfits: dict[str, WriteFailed] = {}
        for record in fresh:
            try:
                texts[record.key] = self._rows.text(record.cells or {})
            except WriteFailed as misfit:
                misfits[record.key] = misfit
        return head, texts, misfits

    def _places(self, head: bytes, texts: Mapping[str, bytes]) -> dict[str, Place]:
        offset = self._size + len(head)
        places = {}
        for key, text in texts.items():
            places[key] = Place(offset, len(text) - 1)
            offset += len(text)
        return places

    def _extend(self, head: bytes, texts: Mapping[str, bytes]) -> None:
        data = head + b"".join(texts.values())
        lengths = [len(text) for text in texts.values()]
        begin = Begin(list(texts), Place(self._size, len(data)), zlib.crc32(data), lengths)
        before = self._log_size
        plain.extend(self._log_fd, before, begin.line())
        try:
            plain.extend(self._file_fd, self._size, data)
        except OSError:
            self._abort(begin)
            raise
        self._unsure.appended(before)
        self._size += len(data)
        self._ends_line = True
        self._done(begin)

    def _abort(self, begin: Begin) -> None:
        """Only if the append was cut back; what is left of it is for the next opening to mend.

        At once: what somebody else appends from now on is not to be taken for its remains.
        """
        with suppress(OSError):
            if os.fstat(self._file_fd).st_size == begin.place.offset:
                plain.write_all(self._log_fd, keylog.abort_line(begin))

    def _done(self, begin: Begin) -> None:
        """The append is on disk; if no more than this line fails, the next use of the file writes it."""
        try:
            plain.write_all(self._log_fd, keylog.done_line(begin))
        except OSError:
            return
        self._log_size = self._mark = os.fstat(self._log_fd).st_size
        if self._keys is not None:
            self._keys.update(begin.places())
            if len(self._keys) > lookup.KEYS_KEPT_MAX:
                self._keys = None
