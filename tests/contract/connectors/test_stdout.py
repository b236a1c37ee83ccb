"""stdout against the contract: no key, no file, one place."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.connectors.contract import Output, WriteFailed
from tests.contract.connectors import contract
from tests.contract.connectors.contract import OutputCase, Settings, write


class Printed(OutputCase):
    """Keeps what is printed instead of a file."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(name="stdout", settings=lambda folder: {}, keys=self._keys, bad=object())

    def build(self, folder: Path) -> Output:
        context = contract.context(folder, print_line=self.lines.append)
        return registry.build_output("stdout", context)

    def _keys(self, settings: Settings) -> list[str]:
        return [json.loads(line)["packet_id"] for line in self.lines]


@pytest.mark.parametrize("behaviour", contract.EVERY_OUTPUT, ids=lambda made: made.__name__)
async def test_contract(
    behaviour: Callable[[OutputCase, Path], Awaitable[None]], tmp_path: Path
) -> None:
    await behaviour(Printed(), tmp_path)


@pytest.mark.parametrize(
    ("format", "data", "line"),
    [
        (None, {"a": 1}, '{"packet_id":"k","data":{"a":1}}'),
        ("jsonl", "ü", '{"packet_id":"k","data":"ü"}'),
        ("json", {"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'),
        ("text", "plain ü", "plain ü"),
        ("text", "half \ud83d", "half \\ud83d"),
        ("text", {"a": 2**64}, '{"a":18446744073709551616}'),
        ("text", None, "null"),
    ],
)
async def test_formats(format: str | None, data: Any, line: str, tmp_path: Path) -> None:
    case = Printed()
    output = case.build(tmp_path)
    settings = {} if format is None else {"format": format}
    flush = await write(output, settings, ("k", data))
    again = await write(output, settings, ("k", data), repeat="repeated")
    await output.close()
    assert case.lines == [line, line]
    assert flush.results == again.results == [{}]
    assert output.explicit_key(settings) is None


async def test_a_reader_who_is_gone_fails_the_write(tmp_path: Path) -> None:
    def gone(line: str) -> None:
        raise BrokenPipeError("Broken pipe")

    output = registry.build_output("stdout", contract.context(tmp_path, print_line=gone))
    with pytest.raises(WriteFailed, match="standard output cannot be written: Broken pipe"):
        await write(output, {}, ("a", 1))
    await output.close()
