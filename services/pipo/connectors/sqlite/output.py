"""Writes units as rows: one transaction per database for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipo.clock import Clock
from pipo.connectors.contract import Context, Flush, Output, Refused, WriteFailed, WriteUnit
from pipo.connectors.lanes import Lanes
from pipo.connectors.sqlite.database import Database
from pipo.connectors.sqlite.rows import Row, key_text, row

DATABASES_OPEN = 64


def build(context: Context) -> Output:
    return SqliteOutput(context.clock)


class SqliteOutput:
    """One thread and one connection per database file."""

    def __init__(self, clock: Clock) -> None:
        self._databases = Lanes(lambda path: Database(path, clock), limit=DATABASES_OPEN)

    async def open(self, marks: Mapping[str, int]) -> None:
        """Nothing to do: a database is opened when its first group comes."""

    def place(self, settings: Mapping[str, Any], key: str = "") -> str:
        return str(settings["path"])

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return key_text(settings)

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> Row:
        return row(data, settings, key)

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        rows = [_row_or_refusal(unit) for unit in units]
        refused = next((made for made in rows if isinstance(made, Refused)), None)
        if atomic and refused is not None:
            raise WriteFailed(refused.message, hint=refused.hint)
        good = [made for made in rows if isinstance(made, Row)]
        if not good:
            return Flush([made for made in rows if isinstance(made, Refused)])
        place = self.place(units[0].settings)
        written = iter(await self._databases.run(place, lambda db: db.write(good, atomic=atomic)))
        return Flush([made if isinstance(made, Refused) else next(written) for made in rows])

    async def recover(self, settings: Mapping[str, Any]) -> None:
        await self._databases.run(self.place(settings), Database.recover)

    async def close(self) -> None:
        await self._databases.close()


def _row_or_refusal(unit: WriteUnit) -> Row | Refused:
    if unit.prepared is not None:
        made: Row = unit.prepared
        return made
    try:
        return row(unit.data, unit.settings, unit.key)
    except Refused as refusal:
        return refusal
