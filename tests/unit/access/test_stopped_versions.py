"""The versions of a pipeline that does not run."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.access import Access
from pipo.access.stopped_versions import _mask
from pipo.errors import BadRequest, InvalidState, NotFound
from pipo.home import Home
from pipo.journal.versions import Version
from pipo.rpc.stubs import pipo_pb2

NAMED: dict[str, Any] = {"pipeline": "old"}
TEXT = """pipo: 1
name: old
secrets: { one: env:OLD_ONE, two: env:OLD_TWO, three: "op://vault/item/field" }
input: { via: push }
output: { from: input, to: stdout }
"""


async def test_a_history_is_read_from_the_journal(journaled: Home, access: Access) -> None:
    """Edge 381, 398: none is in force."""
    found = await access.list_versions(pipo_pb2.ListVersionsRequest(**NAMED))
    assert (found.HasField("current"), found.latest, found.source) == (False, 1, "journal")
    (first,) = found.versions
    assert (first.version, first.author, first.reason, first.pending) == (1, "me", "first", 3)
    text = await access.get_version(pipo_pb2.GetVersionRequest(**NAMED, version="v1"))
    assert (text.text, text.version.pending, text.source) == ("pipo: 1", 3, "journal")
    same = await access.diff(pipo_pb2.DiffRequest(**NAMED, **{"from": "1", "to": "v1"}))
    assert (same.identical, same.source) == (True, "journal")
    with pytest.raises(NotFound, match="no version v2"):
        await access.diff(pipo_pb2.DiffRequest(**NAMED, **{"from": "1", "to": "2"}))


async def test_what_never_ran_has_no_versions(home: Home, access: Access) -> None:
    home.pipeline("old").ensure()
    found = await access.list_versions(pipo_pb2.ListVersionsRequest(**NAMED))
    assert (list(found.versions), found.latest, found.source) == ([], 0, "journal")
    with pytest.raises(NotFound, match="no versions yet"):
        await access.get_version(pipo_pb2.GetVersionRequest(**NAMED, version="1"))


async def test_what_changes_it_needs_it_running(journaled: Home, access: Access) -> None:
    """Decision 1, edge 382, 422."""
    for call in (
        access.rollback(pipo_pb2.RollbackRequest(**NAMED, version="1")),
        access.apply(pipo_pb2.ApplyRequest(**NAMED, source=TEXT)),
    ):
        with pytest.raises(InvalidState, match="'old' is not running") as caught:
            await call
        assert caught.value.hint == "start it with: pipo start old"
    with pytest.raises(BadRequest, match="'x' names no version"):
        await access.rollback(pipo_pb2.RollbackRequest(**NAMED, version="x"))


def test_secrets_that_can_be_read_here_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`op` is not asked: it may want its user's password."""
    monkeypatch.setenv("OLD_ONE", "first-secret")
    monkeypatch.delenv("OLD_TWO", raising=False)
    monkeypatch.setenv("PATH", "")
    found = Version(1, TEXT, b"{}", {}, "h", "a", "human", "r", None, 0)
    mask = _mask([found, Version(2, "no pipeline", b"{}", {}, "h", "a", "human", "r", None, 0)])
    assert mask("x first-secret y") == "x *** y"
