"""The versions of a pipeline that does not run, from its journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from pipo.access import declared_secrets
from pipo.access.stopped import opened
from pipo.errors import NotFound
from pipo.home import PipelineHome
from pipo.journal import versions
from pipo.journal.rows import Rows
from pipo.journal.versions import Version
from pipo.rpc import to_proto
from pipo.rpc.stubs import pipo_pb2

JOURNAL = "journal"


async def history(pipeline: PipelineHome) -> pipo_pb2.ListVersionsReply:
    """Every version, newest first; none is in force."""
    async with opened(pipeline) as rows:
        if rows is None:
            return pipo_pb2.ListVersionsReply(source=JOURNAL)
        found = await versions.history(rows)
    return to_proto.history(found, JOURNAL, None, _mask(found.versions))


async def one(pipeline: PipelineHome, word: str) -> pipo_pb2.VersionText:
    """A version with its texts. Raises: NotFound."""
    async with _journal(pipeline) as rows:
        found = await versions.find(rows, pipeline.name, word)
        pending = await versions.pending_of(rows, found.version)
    return to_proto.version_text(found, pending, JOURNAL, _mask([found]))


async def diff(pipeline: PipelineHome, old: str, new: str) -> pipo_pb2.DiffReply:
    """What differs between two versions. Raises: NotFound."""
    from pipo.lang import text_diff

    async with _journal(pipeline) as rows:
        before, after = await versions.compared(rows, pipeline.name, old, new)
    made = text_diff.diff(
        pipeline.name,
        (before.version, before.texts),
        (after.version, after.texts),
        _mask([before, after]),
    )
    return to_proto.text_diff(made, before.version, after.version, JOURNAL)


@asynccontextmanager
async def _journal(pipeline: PipelineHome) -> AsyncIterator[Rows]:
    async with opened(pipeline) as rows:
        if rows is None:
            raise NotFound(
                f"pipeline {pipeline.name!r} has no versions yet",
                hint=f"the first start makes one: pipo start {pipeline.name}",
            )
        yield rows


def _mask(found: Iterable[Version]) -> Callable[[str], str]:
    """Masks the secrets that these versions declare, as far as this process can read them.

    A text holds references and no values; a value that its author has written out all the same
    is masked where it can be known.
    """
    return declared_secrets.known(found).redactor.text
