"""R22: a packet's field in a path stays inside the folder that the author wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import outcome, running
from tests.stack import Stack, lines

pytestmark = pytest.mark.slow

TENANT = """\
input: { via: http, with: { path: /tenant } }
output:
  from: input
  to: file
  with: { path: "./out/${data.tenant}/day.jsonl", format: jsonl }
  on_error: { retry: 2, delay: 50ms }
"""
LOOKS = """\
input: { via: push }
output: { from: input, to: file, with: { path: ./out/looks.jsonl } }
delivered:
  check: file_exists
  with: { path: "./out/${data.tenant}/day.jsonl" }
  within: 300ms
"""
ESCAPES: dict[str, Any] = {
    "up": "../../escape",
    "absolute": "/escape-abs",
    "two dots": "..",
    "one dot": ".",
    "nothing": "",
    "NUL": "a\0b",
    "300 letters": "x" * 300,
    "an object": {"a": 1},
    "a list": ["acme"],
    "null": None,
    "a link out": "linked",
}
INSIDE = ("acme", "a/b", "..\\x", " ", "a_b", "stays")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("tenant")
    workspace = folder / "workspace"
    for name in ("out/real", "elsewhere"):
        (workspace / name).mkdir(parents=True)
    (workspace / "out/linked").symlink_to("../elsewhere")
    (workspace / "out/stays").symlink_to("real")
    for outside in (workspace / "elsewhere/day.jsonl", workspace / "day.jsonl"):
        outside.write_text("{}\n")
    with running(folder, {"tenant": TENANT, "looks": LOOKS}) as made:
        yield made


def outside(stack: Stack) -> dict[str, bytes]:
    """Every file of the workspace that is not below `out`."""
    found = (path for path in stack.workspace.rglob("*") if path.is_file())
    beside = (path for path in found if path.relative_to(stack.workspace).parts[0] != "out")
    return {str(path): path.read_bytes() for path in beside}


@pytest.mark.parametrize("tenant", INSIDE)
def test_a_name_inside_is_a_folder_of_its_own(stack: Stack, tenant: str) -> None:
    end = outcome(stack, "tenant", {"tenant": tenant})
    assert end["state"] == "delivered", end
    written = lines(stack.workspace / "out" / tenant / "day.jsonl")
    assert [line["packet_id"] for line in written] == [end["packet_id"]]
    assert outcome(stack, "looks", {"tenant": tenant})["state"] == "delivered"


@pytest.mark.parametrize("case", [*ESCAPES, "missing"])
def test_a_name_that_leaves_it_is_refused(stack: Stack, case: str) -> None:
    data = {"tenant": ESCAPES[case]} if case in ESCAPES else {}
    before = outside(stack)
    folders = sorted(path.name for path in (stack.workspace / "out").iterdir())
    end = outcome(stack, "tenant", data)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
    message = end["error"]["message"]
    assert "./out/${data.tenant}/day.jsonl" in message
    assert len(message) < 400
    for shown in ("../../escape", "/escape-abs", "linked", "xxxx"):
        if str(data.get("tenant")).startswith(shown):
            assert shown in message
    assert outside(stack) == before
    assert sorted(path.name for path in (stack.workspace / "out").iterdir()) == folders
    assert not Path("/escape-abs").exists()


@pytest.mark.parametrize("case", [*ESCAPES, "missing"])
def test_a_check_never_looks_outside(stack: Stack, case: str) -> None:
    """The same answer whether the file is there or not."""
    data = {"tenant": ESCAPES[case]} if case in ESCAPES else {}
    end = outcome(stack, "looks", data)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert "./out/${data.tenant}/day.jsonl" in end["error"]["message"]
