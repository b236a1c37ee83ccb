"""`pipo history`, `diff`, `rollback` and `apply` (edge 398, 399)."""

from __future__ import annotations

from collections.abc import Iterable

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.tables import Column, one_line, printable, table
from pipo_cli.render.times import count, stamp

HASH_DIGITS = 12
COLUMNS = (
    Column(""),
    Column("VER"),
    Column("CREATED"),
    Column("AUTHOR"),
    Column("PENDING", "right"),
    Column("HASH"),
    Column("REASON"),
)


def history(name: str, reply: pipo_pb2.ListVersionsReply) -> list[str]:
    """One line for each version, newest first; `*` marks the one that new packets use."""
    if not reply.versions:
        return [f"{name} has no versions yet; its first start makes one"]
    current = reply.current if reply.HasField("current") else None
    rows = [_row(version, version.version == current) for version in reply.versions]
    lines = table(COLUMNS, rows)
    if current is None:
        lines.append(
            f"{name} does not run; the next start runs v{reply.latest}, "
            "or a new version if its file has changed"
        )
    return lines


def difference(reply: pipo_pb2.DiffReply) -> list[str]:
    if reply.identical:
        return [f"v{getattr(reply, 'from')} and v{reply.to} are identical"]
    return printable(reply.diff).removesuffix("\n").split("\n")


def rolled_back(name: str, reply: pipo_pb2.RollbackReply) -> list[str]:
    if not reply.changed:
        return [
            f"{name} runs that already: v{reply.version} has the texts of v{reply.rolled_back_to}",
            *_warnings(reply.warnings),
        ]
    return [
        f"rolled {name} back to v{reply.rolled_back_to}: new packets use it as v{reply.version}",
        *_older(reply.pending_older),
        "a start runs it too, until the file changes",
        *_warnings(reply.warnings),
    ]


def applied(name: str, reply: pipo_pb2.ApplyReply) -> list[str]:
    if not reply.changed:
        return [f"{name} runs that already, as v{reply.version}"]
    return [
        f"applied v{reply.version} to {name}: new packets use it, before it was v{reply.previous}",
        *_older(reply.pending_older),
        *_warnings(reply.warnings),
    ]


def _row(version: pipo_pb2.Version, current: bool) -> list[str]:
    return [
        "*" if current else "",
        f"v{version.version}",
        stamp(version.created_at),
        version.author,
        count(version.pending),
        version.hash[:HASH_DIGITS],
        version.reason,
    ]


def _older(pending: int) -> list[str]:
    return [f"{count(pending)} pending packet(s) finish on older versions"] if pending else []


def _warnings(warnings: Iterable[pipo_pb2.VersionWarning]) -> list[str]:
    lines = []
    for one in warnings:
        what = "has changed since" if one.HasField("current") else "is not there any more"
        lines.append(f"warning: {one_line(one.path)} {what}")
        lines.append(f"  hint: {one_line(one.hint)}")
    return lines
