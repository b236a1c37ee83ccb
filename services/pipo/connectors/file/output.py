"""Writes units as records of files: one append per file for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipo.connectors.contract import Context, Flush, Output, Refused, WriteFailed, WriteUnit
from pipo.connectors.file.appending import AppendedFile, Record
from pipo.connectors.file.records import line
from pipo.connectors.lanes import Lanes
from pipo.errors import InvalidState

FILES_OPEN = 64


def build(context: Context) -> Output:
    return FileOutput()


def refuse(settings: Mapping[str, Any]) -> None:
    """Raises: InvalidState, for settings that are part of the language and not built yet."""
    for name, built in (("format", "jsonl"), ("mode", "append")):
        wanted = settings.get(name, built)
        if wanted != built:
            raise InvalidState(
                f"`{name}: {wanted}` of the output 'file' is not built yet",
                hint=f"this version of Pipo writes `{name}: {built}`",
            )


class FileOutput:
    """One thread and one open file per path."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._rested: list[str] = []
        self._files = Lanes(self._file, limit=FILES_OPEN, on_rest=self._rest)

    async def open(self, marks: Mapping[str, int]) -> None:
        self._marks = dict(marks)

    def place(self, settings: Mapping[str, Any]) -> str:
        return str(settings["path"])

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return None

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        try:
            refuse(settings)
        except InvalidState as error:
            raise Refused(error.message, hint=error.hint) from None

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        records = [_record_or_refusal(unit) for unit in units]
        refused = next((made for made in records if isinstance(made, Refused)), None)
        if atomic and refused is not None:
            raise WriteFailed(refused.message, hint=refused.hint)
        good = [made for made in records if isinstance(made, Record)]
        if not good:
            return Flush([made for made in records if isinstance(made, Refused)])
        place = self.place(units[0].settings)
        results, size = await self._files.run(place, lambda file: (file.append(good), file.size))
        written = iter(results)
        return Flush(
            [made if isinstance(made, Refused) else next(written) for made in records],
            marks={**self._forgotten(), place: size},
        )

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """Nothing to do: a torn end is left on a line of its own by the next append."""

    async def close(self) -> None:
        await self._files.close()

    def _rest(self, place: str) -> None:
        """A file that rests has no append in flight, so what it holds is known without a mark."""
        self._marks.pop(place, None)
        self._rested.append(place)

    def _forgotten(self) -> dict[str, None]:
        rested, self._rested = self._rested, []
        return dict.fromkeys(rested)

    def _file(self, path: str) -> AppendedFile:
        return AppendedFile(path, self._marks.get(path, 0))


def _record_or_refusal(unit: WriteUnit) -> Record | Refused:
    try:
        return Record(unit.key, line(unit.key, unit.data), unit.repeat)
    except Refused as refusal:
        return refusal
