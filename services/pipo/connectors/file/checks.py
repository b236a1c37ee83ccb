"""Looks at files: file_exists, file_nonempty, line_contains, checksum.

`line_contains` looks first where the write said that the record went, so its cost
does not grow with the file. Only when the text is not there is the whole file
read, in bounded pieces; one that has only grown since is read from there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from threading import Event

from pipo.connectors.contract import (
    CheckContext,
    CheckError,
    Checks,
    Impossible,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.connectors.file.looking import LookedAtFile, Records
from pipo.connectors.lanes import Lanes
from pipo.lang.printing import mixed_text

FILES_OPEN = 64

_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")


def build(context: CheckContext) -> Checks:
    return FileChecks()


class FileChecks:
    """One thread per path."""

    def __init__(self) -> None:
        self._files = Lanes(LookedAtFile, limit=FILES_OPEN)

    def place(self, target: Target) -> str:
        return str(target.settings.get("path") or target.output["path"])

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        stop = Event()
        try:
            return await self._files.run(
                place, lambda file: [_look(file, t, stop) for t in targets]
            )
        except asyncio.CancelledError:
            stop.set()
            raise

    def judge(self, target: Target, seen: Seen) -> Judgement:
        if target.check == "line_contains":
            value = _wanted_line(target)
            if "\n" in value:
                return Impossible("no line contains a text with a line break", seen.evidence)
            why = f"no line of {seen.evidence['path']} contains {_shortened(value)!r}"
            found = seen.value is not None
            return Passed(seen.evidence) if found else Pending(why, seen.evidence)
        if seen.value is None:
            return Pending(f"{seen.evidence['path']} does not exist yet", seen.evidence)
        match target.check:
            case "file_nonempty":
                passed, why = seen.value > 0, f"{seen.evidence['path']} is empty"
            case "checksum":
                passed = seen.value == str(target.settings["sha256"]).lower()
                why = f"the SHA-256 of {seen.evidence['path']} is {seen.value}"
            case _:
                passed, why = True, ""
        return Passed(seen.evidence) if passed else Pending(why, seen.evidence)

    async def close(self) -> None:
        await self._files.close()


def _look(file: LookedAtFile, target: Target, stop: Event) -> Seen | CheckError:
    try:
        match target.check:
            case "line_contains":
                wanted, records = _wanted_line(target).encode(), _records(target, file.path)
                return file.find(wanted, target.result, records=records, stop=stop)
            case "checksum":
                if not _SHA256.match(str(target.settings.get("sha256", ""))):
                    return CheckError("`sha256` is not 64 hex digits")
                return file.checksum(stop)
            case _:
                return file.size()
    except CheckError as error:
        return error
    except UnicodeError:
        return CheckError("the text to look for is no UTF-8")
    except OSError as error:
        return CheckError(f"{file.path}: {error.strerror or error}")


def _records(target: Target, path: str) -> Records:
    output = target.output
    if output.get("path") != path or output.get("mode", "append") == "write":
        return "any"
    match output.get("format", "jsonl"):
        case "jsonl":
            return "json lines"
        case "json":
            return "any"
        case _:
            return "logged"


def _wanted_line(target: Target) -> str:
    """A number or a boolean is looked for as templates print it: `${data.order_id}` alone keeps its type."""
    value = target.settings.get("value")
    if isinstance(value, (int, float)):
        return mixed_text(value)
    if not isinstance(value, str) or not value:
        raise CheckError("`value` renders to no text", hint="look at the template in `value`")
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"
