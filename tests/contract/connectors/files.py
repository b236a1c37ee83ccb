"""Every format and mode of `file` as a case of the contract, and how its records are read back."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.connectors.contract import Flush, Output, WriteUnit
from pipo.connectors.file.keylog import SUFFIX
from tests.contract.connectors.contract import OutputCase, Settings, context

FORMATS = ("jsonl", "json", "csv", "text")
LOGGED = ("csv", "text")


def settings(folder: Path, file_format: str, mode: str = "append") -> dict[str, Any]:
    return {"path": str(folder / f"a.{file_format}"), "format": file_format, "mode": mode}


def content(where: Settings) -> bytes:
    return Path(where["path"]).read_bytes()


def side_file(where: Settings) -> Path:
    return Path(where["path"] + SUFFIX)


def logged(where: Settings) -> list[Any]:
    return [json.loads(line) for line in side_file(where).read_bytes().splitlines()]


def ids(where: Settings) -> list[str]:
    """The ids of the records, in order; a record that does not parse is an error."""
    raw = content(where)
    assert b"\0" not in raw
    match where["format"], where["mode"]:
        case "jsonl", _:
            return [json.loads(line)["packet_id"] for line in raw.splitlines()]
        case "json", "append":
            return [record["packet_id"] for record in json.loads(raw)]
        case "json", _:
            return [json.loads(raw)["id"]]
        case "csv", _:
            return [row["id"] for row in csv.DictReader(io.StringIO(raw.decode(), newline=""))]
        case _:
            return [json.loads(line)["id"] for line in raw.splitlines()]


@dataclass
class FileCase(OutputCase):
    """A case whose data carries the key, since rows and lines of text carry no other."""

    def build(self, folder: Path) -> Output:
        return Carrying(registry.build_output(self.name, context(folder)), self.good)


def file_case(file_format: str, mode: str = "append") -> FileCase:
    return FileCase(
        name="file",
        settings=lambda folder: settings(folder, file_format, mode),
        keys=ids,
        bad=object(),
    )


class Carrying:
    """An output that puts the key into data that equals `good`."""

    def __init__(self, output: Output, good: Any) -> None:
        self._output = output
        self._good = good

    async def open(self, marks: Mapping[str, int]) -> None:
        await self._output.open(marks)

    def place(self, settings: Settings, key: str = "") -> str:
        return self._output.place(settings, key)

    def explicit_key(self, settings: Settings) -> str | None:
        return self._output.explicit_key(settings)

    def prepare(self, data: Any, settings: Settings, key: str) -> None:
        self._output.prepare(data, settings, key)

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        carrying = [
            replace(unit, data={"id": unit.key, **unit.data}) if unit.data == self._good else unit
            for unit in units
        ]
        return await self._output.write(carrying, atomic=atomic)

    async def recover(self, settings: Settings) -> None:
        await self._output.recover(settings)

    async def close(self) -> None:
        await self._output.close()


def put(where: Settings, text: bytes) -> None:
    Path(where["path"]).write_bytes(text)


def counted(monkeypatch: pytest.MonkeyPatch, call: str) -> list[Any]:
    """The arguments of each call of `os.<call>` from now on."""
    calls: list[Any] = []
    real = getattr(os, call)

    def counting(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(os, call, counting)
    return calls
