"""A history, a diff, a rollback and an apply as text (edge 398, 399)."""

from __future__ import annotations

from typing import Any

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.versions import applied, difference, history, rolled_back

AT = 1_791_666_828_263


def one(number: int, **given: Any) -> pipo_pb2.Version:
    made: dict[str, Any] = {
        "version": number,
        "hash": f"{number}23456789abcdef",
        "author": "ada",
        "reason": "first start",
        "created_at": AT,
        "pending": 0,
    }
    return pipo_pb2.Version(**made | given)


def test_a_star_marks_what_new_packets_use() -> None:
    versions = [one(12, pending=1234, reason="rollback\nto v1"), one(1, author="human")]
    reply = pipo_pb2.ListVersionsReply(versions=versions, current=12, latest=12)
    assert history("people", reply) == [
        "   VER  CREATED                   AUTHOR  PENDING  HASH          REASON",
        "*  v12  2026-10-10T21:13:48.263Z  ada       1,234  1223456789ab  rollback to v1",
        "   v1   2026-10-10T21:13:48.263Z  human         0  123456789abc  first start",
    ]


def test_one_that_is_stopped_says_what_the_next_start_runs() -> None:
    reply = pipo_pb2.ListVersionsReply(versions=[one(2), one(1)], latest=2)
    lines = history("people", reply)
    assert [line.split()[0] for line in lines[1:3]] == ["v2", "v1"]
    assert lines[3] == (
        "people does not run; the next start runs v2, or a new version if its file has changed"
    )


def test_one_that_never_ran() -> None:
    assert history("people", pipo_pb2.ListVersionsReply()) == [
        "people has no versions yet; its first start makes one"
    ]


def test_a_diff_is_printed_as_it_is_without_what_a_terminal_obeys() -> None:
    reply = pipo_pb2.DiffReply(diff="--- p v1\n+++ p v2\n@@ -1 +1 @@\n-\x1b[2J\n+b\n")
    assert difference(reply) == ["--- p v1", "+++ p v2", "@@ -1 +1 @@", "-\\x1b[2J", "+b"]
    ends: dict[str, Any] = {"from": 1, "to": 3}
    same = pipo_pb2.DiffReply(**ends, identical=True)
    assert difference(same) == ["v1 and v3 are identical"]


def test_a_rollback_says_what_runs_now_and_what_stands_behind_it() -> None:
    reply = pipo_pb2.RollbackReply(
        version=3, previous=2, changed=True, pending_older=1500, rolled_back_to=1
    )
    reply.warnings.add(path="./a.py", hint="it runs with its own", current="x")
    reply.warnings.add(path="./b.json", hint="it runs with its own")
    assert rolled_back("people", reply) == [
        "rolled people back to v1: new packets use it as v3",
        "1,500 pending packet(s) finish on older versions",
        "a start runs it too, until the file changes",
        "warning: ./a.py has changed since",
        "  hint: it runs with its own",
        "warning: ./b.json is not there any more",
        "  hint: it runs with its own",
    ]
    same = pipo_pb2.RollbackReply(version=3, previous=3, rolled_back_to=1)
    assert rolled_back("people", same) == ["people runs that already: v3 has the texts of v1"]


def test_an_apply() -> None:
    done = pipo_pb2.ApplyReply(version=2, previous=1, changed=True)
    assert applied("people", done) == ["applied v2 to people: new packets use it, before it was v1"]
    done.changed = False
    assert applied("people", done) == ["people runs that already, as v2"]
