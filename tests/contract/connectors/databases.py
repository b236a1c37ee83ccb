"""Databases that the sqlite tests write and look at, with apsw, as the output does.

A second SQLite library in one process drops the locks of the first when it closes a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from tests.contract.connectors.contract import OutputCase, Settings


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"path": str(folder / "a.db"), "table": "t", "create": True, **more}


def put(where: Settings, text: str) -> None:
    Path(where["path"]).write_text(text)


def ask(where: Settings, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    connection = apsw.Connection(where["path"])
    try:
        found = [list(connection.execute(statement)) for statement in statements]
    finally:
        connection.close()
    return found[-1]


def rows(where: Settings, columns: str = "*") -> list[tuple[Any, ...]]:
    return ask(where, f'SELECT {columns} FROM "{where["table"]}" ORDER BY rowid')


CASE = OutputCase(
    name="sqlite",
    settings=settings,
    keys=lambda where: [row[0] for row in rows(where, "packet_id")],
    bad={"no such column": 1},
)
