"""The journal, as the parts of a pipeline use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pipo.journal.changes import Change


class Ledger(Protocol):
    """`stage` joins the next commit, `submit` asks for one and tells, `commit` waits for it."""

    def stage(self, *changes: Change) -> None: ...

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None: ...

    async def commit(self, *changes: Change) -> list[Any]: ...
