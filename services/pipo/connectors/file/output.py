"""Writes units to files: one write for each group, in the output's format and mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from pipo.connectors.contract import Context, Flush, Output, Refused, WriteFailed, WriteUnit
from pipo.connectors.file import keylog
from pipo.connectors.file.appending import AppendedFile
from pipo.connectors.file.arrays import ArrayFile
from pipo.connectors.file.logged import LoggedFile
from pipo.connectors.file.records import Record, record
from pipo.connectors.file.replacing import ReplacedFile
from pipo.connectors.file.rows import Rows
from pipo.connectors.lanes import Lanes

FILES_OPEN = 64

Style = tuple[str, str]
"""Format and mode."""
Result = Mapping[str, Any] | WriteFailed | Refused


class Writer(Protocol):
    """One file in one style. Only `close` does not raise WriteFailed."""

    @property
    def marks(self) -> Mapping[str, int]:
        """What the journal notes with the units of the last write (decision 003)."""

    def write(
        self, records: Sequence[Record], *, atomic: bool
    ) -> Sequence[Mapping[str, Any] | WriteFailed]: ...

    def mend(self) -> None: ...

    def close(self) -> None: ...


def build(context: Context) -> Output:
    return FileOutput(context.log)


class FileOutput:
    """One thread and one open file per path."""

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._marks: dict[str, int] = {}
        self._noted: set[str] = set()
        self._rested: list[str] = []
        self._files = Lanes(self._file, limit=FILES_OPEN, on_rest=self._rest)

    async def open(self, marks: Mapping[str, int]) -> None:
        self._marks = dict(marks)
        self._noted = set(marks)

    def place(self, settings: Mapping[str, Any], key: str = "") -> str:
        return str(settings["path"])

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return None

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        if not settings["path"]:
            raise Refused("the path is empty", hint="look at the template in `path`")

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        """A pipeline's versions may write to one path in two styles: those of one follow each other."""
        made = [_record_or_refusal(unit) for unit in units]
        refused = next((refusal for refusal in made if isinstance(refusal, Refused)), None)
        if atomic and refused is not None:
            raise WriteFailed(refused.message, hint=refused.hint)
        place = self.place(units[0].settings)
        styled = [
            (_style(unit.settings), good)
            for unit, good in zip(units, made, strict=True)
            if isinstance(good, Record)
        ]
        if not styled:
            return Flush([refusal for refusal in made if isinstance(refusal, Refused)])
        results, marks = await self._files.run(place, lambda file: file.write(styled, atomic))
        self._noted.update(marks)
        written = iter(results)
        return Flush(
            [refusal if isinstance(refusal, Refused) else next(written) for refusal in made],
            marks={**self._forgotten(), **marks},
        )

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """Cuts off or removes what a crash left of a write."""
        style = _style(settings)
        await self._files.run(self.place(settings), lambda file: file.mend(style))

    async def close(self) -> None:
        await self._files.close()

    def _rest(self, place: str) -> None:
        """A file that rests has no append in flight, so what it holds is known without a mark."""
        for name in (place, place + keylog.SUFFIX):
            self._marks.pop(name, None)
            if name in self._noted:
                self._noted.remove(name)
                self._rested.append(name)

    def _forgotten(self) -> dict[str, None]:
        rested, self._rested = self._rested, []
        return dict.fromkeys(rested)

    def _file(self, path: str) -> _File:
        return _File(path, self._marks, self._log)


class _File:
    """What is at a path, in the style that it was written in last."""

    def __init__(self, path: str, marks: Mapping[str, int], log: Callable[..., None]) -> None:
        self._path = path
        self._mark = marks.get(path, 0)
        self._log_mark = marks.get(path + keylog.SUFFIX, 0)
        self._log = log
        self._style: Style | None = None
        self._writer: Writer | None = None

    def write(
        self, styled: Sequence[tuple[Style, Record]], atomic: bool
    ) -> tuple[list[Mapping[str, Any] | WriteFailed], Mapping[str, int]]:
        """Per record its result, and the marks.

        Raises: WriteFailed, when nothing was written.
        """
        results: list[Mapping[str, Any] | WriteFailed] = []
        marks: dict[str, int] = {}
        for style, records in _runs(styled):
            writer = self._in(style)
            try:
                results += writer.write(records, atomic=atomic)
            except WriteFailed as error:
                if not any(isinstance(result, Mapping) for result in results):
                    raise
                results += [error] * len(records)
            marks |= writer.marks
        return results, marks

    def mend(self, style: Style) -> None:
        self._in(style).mend()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _in(self, style: Style) -> Writer:
        if self._writer is None or style != self._style:
            self.close()
            self._style, self._writer = style, self._made(style)
        return self._writer

    def _made(self, style: Style) -> Writer:
        match style:
            case _, "write":
                return ReplacedFile(self._path)
            case "jsonl", _:
                return AppendedFile(self._path, self._mark)
            case "json", _:
                return ArrayFile(self._path, warn=self._warn)
            case file_format, _:
                rows = Rows(self._path) if file_format == "csv" else None
                return LoggedFile(self._path, self._log_mark, rows=rows, warn=self._warn)

    def _warn(self, message: str, **keys: object) -> None:
        self._log("warning", message, **keys)


def _style(settings: Mapping[str, Any]) -> Style:
    return settings.get("format", "jsonl"), settings.get("mode", "append")


def _runs(styled: Sequence[tuple[Style, Record]]) -> Iterator[tuple[Style, list[Record]]]:
    for style, run in groupby(styled, key=lambda one: one[0]):
        yield style, [made for _, made in run]


def _record_or_refusal(unit: WriteUnit) -> Record | Refused:
    try:
        return record(unit, *_style(unit.settings))
    except Refused as refusal:
        return refusal
