"""Helpers for tests: real ones, with a log that is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipo.clock import SystemClock
from pipo.functions.calling import Call, FunctionFailed, Limits
from pipo.functions.code import Code
from pipo.functions.launching import environment
from pipo.functions.pool import IDLE_S, Pool
from pipo.functions.prints import Caller, PrintedLog
from pipo.payload import decode, encode

LIMIT_BYTES = 1024 * 1024


def code_of(folder: Path, text: str, *, name: str = "v1", **beside: str) -> Code:
    """A module `x.fn.py` and its siblings, by their names."""
    texts = {f"./{sibling}.py": sibling_text for sibling, sibling_text in beside.items()}
    return Code(name, "./x.fn.py", {"./x.fn.py": text, **texts}, folder)


class Rig:
    """A pool and what its functions have printed: level, text, node and packet of each line."""

    def __init__(
        self,
        code: Code,
        *,
        size: int = 1,
        mask: Callable[[str], str] = str,
        idle_s: float = IDLE_S,
        **limits: Any,
    ) -> None:
        self.code = code
        self.lines: list[tuple[str, str, str, str]] = []
        clock = SystemClock()
        self.pool = Pool(
            size=size,
            limits=Limits(**{"result_bytes": LIMIT_BYTES, **limits}),
            environ=environment(os.environ),
            log=PrintedLog(self._log, mask, clock),
            clock=clock,
            idle_s=idle_s,
        )

    def _log(self, level: str, text: str, **about: Any) -> None:
        assert about.pop("action") == "fn.printed"
        self.lines.append((level, text, about.pop("node", ""), about.pop("packet", "")))
        assert not about

    async def call(
        self, function: str, data: Any = None, *, code: Code | None = None, tap: bool = False
    ) -> Any:
        """The result of one call. Raises: FunctionFailed."""
        asked = Call(
            code or self.code,
            function,
            encode(data),
            {"packet_id": "P1"},
            not tap,
            Caller("shape", "P1"),
        )
        result = await self.pool.run(asked)
        return None if tap else decode(result)

    async def fault(self, function: str, data: Any = None, **how: Any) -> str:
        """Why a call fails."""
        try:
            result = await self.call(function, data, **how)
        except FunctionFailed as failed:
            return str(failed)
        raise AssertionError(f"fn.{function} returned {result!r}")
