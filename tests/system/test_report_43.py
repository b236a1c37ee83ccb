"""R43: YAML 1.2 scalars are what was typed; a quoted "false" is a text and no switch."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.packets import outcome, running
from tests.stack import Stack

pytestmark = pytest.mark.slow

NORWAY = """\
input: { via: push }
nodes:
  no: { from: input, filter: 'data.country == "no"' }
  set:
    from: no
    transform: map
    with: { data: { a: no, b: on, c: off, d: y, e: 12:30, f: 1_000, g: 2026-01-02, h: 0x1F, i: 0o17, j: 017, k: 1.10, l: 1e3, m: ~, n: "true", o: true, p: =, q: 08 } }
output: { from: set, to: file, with: { path: ./out/n.jsonl, format: jsonl } }
"""
WANTED = json.loads(
    '{"a": "no", "b": "on", "c": "off", "d": "y", "e": "12:30", "f": "1_000", "g": "2026-01-02",'
    ' "h": 31, "i": 15, "j": 17, "k": 1.1, "l": 1000, "m": null, "n": "true", "o": true, "p": "=",'
    ' "q": 8}'
)
SWITCH = "pipo: 1\nname: switch\ninput: { via: push }\n"
REFUSED = {
    'create: "false"': ("true or false", "the text 'false'"),
    "create: no": ("true or false", "the text 'no'"),
    "create: off": ("true or false", "the text 'off'"),
    'max: "100"': ("a whole number", "the text '100'"),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("norway"), {"norway": NORWAY}) as made:
        yield made


def test_what_was_typed_arrives(stack: Stack) -> None:
    """A node may be called `no`; the branch `no` of a route comes with routes."""
    assert outcome(stack, "norway", {"country": "no"})["state"] == "delivered"
    assert outcome(stack, "norway", {"country": False})["state"] == "filtered"
    [line] = (stack.workspace / "out/n.jsonl").read_text().splitlines()
    data = json.loads(line)["data"]
    assert data == WANTED
    assert {type(data[key]) for key in "hijq"} == {int}
    assert type(data["o"]) is bool


@pytest.mark.parametrize("setting", REFUSED)
def test_a_text_is_no_switch_and_no_number(stack: Stack, setting: str) -> None:
    wanted, found = REFUSED[setting]
    output = "output: { from: input, to: sqlite, with: { path: ./a.db, table: t%s } }\n"
    name = setting.partition(":")[0]
    if name == "max":
        text = SWITCH + output % "" + f"buffer: {{ {setting} }}\n"
    else:
        text = SWITCH + output % f", {setting}"
    row, line = next((n, line) for n, line in enumerate(text.splitlines(), 1) if setting in line)
    column = line.index(setting) + len(f"{name}: ") + 1
    path = stack.write("switch.pipo", text)
    try:
        done = stack.pipo("check", "switch.pipo")
    finally:
        path.unlink()
    assert done.returncode == 1
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"switch.pipo:{row}:{column}  error  P002  ")
    assert wanted in first
    assert found in first
