"""Prints units on the runner's standard output; a repeated write prints again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipo.connectors.contract import Context, Flush, Output, Refused, WriteFailed, WriteUnit
from pipo.connectors.file.records import line, pretty, text
from pipo.connectors.lanes import Lanes

PLACE = "stdout"


def build(context: Context) -> Output:
    return StdoutOutput(context.print_line)


class StdoutOutput:
    """One thread prints, so that a reader who does not read holds up the output alone."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._lanes = Lanes(lambda place: _Printer(print_line), limit=1)

    async def open(self, marks: Mapping[str, int]) -> None: ...

    def place(self, settings: Mapping[str, Any], key: str = "") -> str:
        return PLACE

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return None

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None: ...

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        texts = [_text_or_refusal(unit) for unit in units]
        refused = next((made for made in texts if isinstance(made, Refused)), None)
        if atomic and refused is not None:
            raise WriteFailed(refused.message, hint=refused.hint)
        good = [made for made in texts if isinstance(made, str)]
        await self._lanes.run(PLACE, lambda printer: printer.print(good))
        return Flush([made if isinstance(made, Refused) else {} for made in texts])

    async def recover(self, settings: Mapping[str, Any]) -> None: ...

    async def close(self) -> None:
        await self._lanes.close()


class _Printer:
    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line

    def print(self, texts: Sequence[str]) -> None:
        """Raises: WriteFailed, when nobody reads any more."""
        try:
            for text in texts:
                self._print_line(text)
        except (OSError, ValueError) as error:
            raise WriteFailed(f"standard output cannot be written: {error}") from error

    def close(self) -> None: ...


def text_of(unit: WriteUnit) -> str:
    """What is printed for a unit, without the last line break.

    Raises: Refused, for data that JSON cannot hold.
    """
    match unit.settings.get("format", "jsonl"):
        case "json":
            return pretty(unit.data).decode()
        case "text":
            return text(unit.data).decode()
        case _:
            return line(unit.key, unit.data)[:-1].decode()


def _text_or_refusal(unit: WriteUnit) -> str | Refused:
    try:
        return text_of(unit)
    except Refused as refusal:
        return refusal
