"""The file output's example, against a real stack (outputs)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipo.clock import iso
from tests.packets import outcome, running
from tests.stack import Stack

pytestmark = pytest.mark.slow

STAMP = """\
input: { via: push }
nodes: { stamp: { from: input, transform: map, with: { data: "${data}" } } }
output:
  from: stamp
  to: file
  with:
    path: "./out/${iso(meta.received_at)}.json"
    format: json
    mode: write
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("file"), {"stamp": STAMP}) as made:
        yield made


@pytest.mark.seed("O027")
def test_the_stamp_of_the_seed(stack: Stack) -> None:
    checked = stack.pipo("check", "stamp.pipo")
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith("  ok\n")
    out = stack.workspace / "out"
    assert not out.exists()
    wanted = {}
    for n in range(3):
        end = outcome(stack, "stamp", {"n": n})
        assert end["state"] == "delivered"
        wanted[f"{iso(end['received_at'])}.json"] = {"n": n}
    assert sorted(path.name for path in out.iterdir()) == sorted(wanted)
    for name, data in wanted.items():
        assert json.loads((out / name).read_text()) == data
