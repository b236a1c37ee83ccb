"""Records to messages. The journal's reads carry the messages' own field names.

`message` copies by the message's fields, so a field that a record lacks is an
error at once and not a silent default; `given` supplies what only the caller
knows, such as who answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pipo.errors import Finding
from pipo.journal.changes import PENDING
from pipo.rpc.stubs import packet_pb2, pipo_pb2

if TYPE_CHECKING:
    from pipo.journal.versions import History, Version
    from pipo.lang.text_diff import TextDiff

M = TypeVar("M", bound=Message)


def _as_is(text: str) -> str:
    return text


def message(cls: type[M], record: Any, /, **given: Any) -> M:
    """A message of `cls` with each field from `given` or the record's attribute of that name.

    None leaves a field absent; records inside become messages inside.
    Raises: AttributeError, for a field that stands in neither.
    """
    made = cls()
    _fill(made, record, given)
    return made


def packet_page(record: Any, source: str) -> pipo_pb2.ListPacketsReply:
    return message(pipo_pb2.ListPacketsReply, record, source=source)


def trace(record: Any, source: str, pipeline: str) -> packet_pb2.Trace:
    made = message(packet_pb2.Trace, record, source=source, withheld=())
    for event in (*made.events, *(e for c in made.copies for e in c.events)):
        event.pipeline = pipeline
    return made


def version(
    record: Version, pending: int, masked: Callable[[str], str] = _as_is
) -> pipo_pb2.Version:
    return pipo_pb2.Version(
        version=record.version,
        hash=record.hash,
        author=masked(record.author),
        author_kind=record.author_kind,
        reason=masked(record.reason),
        proposal=record.proposal,
        files=record.texts.digests,
        created_at=record.created_at,
        pending=pending,
    )


def history(
    record: History, source: str, current: int | None, masked: Callable[[str], str] = _as_is
) -> pipo_pb2.ListVersionsReply:
    return pipo_pb2.ListVersionsReply(
        versions=[
            version(one, record.pending.get(one.version, 0), masked) for one in record.versions
        ],
        current=current,
        latest=record.versions[0].version if record.versions else 0,
        source=source,
    )


def version_text(
    record: Version, pending: int, source: str, masked: Callable[[str], str] = _as_is
) -> pipo_pb2.VersionText:
    return pipo_pb2.VersionText(
        version=version(record, pending, masked),
        text=masked(record.source),
        texts={path: masked(text) for path, text in record.files.items()},
        source=source,
    )


def text_diff(record: TextDiff, old: int, new: int, source: str) -> pipo_pb2.DiffReply:
    # `from` is no name in Python.
    return message(pipo_pb2.DiffReply, record, source=source, **{"from": old, "to": new})


def acknowledged(outcome: Any, packet_id: str) -> pipo_pb2.AckReply:
    return message(pipo_pb2.AckReply, outcome, packet_id=packet_id, acked=True)


def event_page(record: Any, source: str, pipeline: str) -> pipo_pb2.ListEventsReply:
    made = message(pipo_pb2.ListEventsReply, record, source=source)
    for event in made.events:
        event.pipeline = pipeline
    return made


def stats(counters: Mapping[str, int]) -> pipo_pb2.Stats:
    """The counts that a person asks for, from the journal's counters (decisions 5, 36)."""
    return pipo_pb2.Stats(
        accepted=counters.get("all.accepted", 0),
        delivered=counters.get("all.delivered", 0),
        filtered=counters.get("all.filtered", 0),
        pending=sum(counters.get(f"now.{state}", 0) for state in PENDING),
        escalated=counters.get("now.escalated", 0),
        dead_lettered=counters.get("now.dead_lettered", 0),
        rejected=counters.get("total.packet.rejected", 0),
    )


def chain(
    to: str, settings: Mapping[str, Any], inputs: Iterable[tuple[str, Mapping[str, Any]]]
) -> pipo_pb2.Chain:
    """The pipelines at both ends, by an output and each input's `via` and settings.

    A receiver that each packet names itself is none of them.
    """
    feeds = [str(settings["pipeline"])] if to == "pipeline" else []
    senders = (found["from"] for via, found in inputs if via == "pipeline")
    return pipo_pb2.Chain(
        feeds=[name for name in feeds if "${" not in name],
        fed_by=sorted({sender for listed in senders for sender in listed}),
    )


def diagnostic(finding: Finding, masked: Callable[[str], str] = _as_is) -> packet_pb2.Diagnostic:
    return packet_pb2.Diagnostic(
        code=finding.code,
        severity=finding.severity,
        message=masked(finding.message),
        hint=masked(finding.hint),
        line=finding.line,
        col=finding.col,
        path=finding.path,
    )


# `pipeline` of an event is known to the process, not to its journal.
_OPTIONAL_IN_RECORDS = frozenset({"pipo.v1.Event.pipeline"})


def _fill(made: Message, record: Any, given: dict[str, Any]) -> None:
    for name, kind, required in _plan(made.DESCRIPTOR):
        if name in given:
            value = given[name]
        elif required:
            value = getattr(record, name)
        else:
            value = getattr(record, name, None)
        if value is not None:
            kind(made, name, value)


def _set(made: Message, name: str, value: Any) -> None:
    setattr(made, name, value)


def _extend(made: Message, name: str, values: Any) -> None:
    getattr(made, name).extend(values)


def _nest(made: Message, name: str, record: Any) -> None:
    inner = getattr(made, name)
    inner.SetInParent()
    if isinstance(record, Message):
        inner.CopyFrom(record)
    else:
        _fill(inner, record, {})


def _nest_each(made: Message, name: str, records: Any) -> None:
    field = getattr(made, name)
    for record in records:
        if isinstance(record, Message):
            field.append(record)
        else:
            _fill(field.add(), record, {})


@cache
def _plan(
    descriptor: Descriptor,
) -> tuple[tuple[str, Callable[[Message, str, Any], None], bool], ...]:
    return tuple(
        (field.name, _kind(field), field.full_name not in _OPTIONAL_IN_RECORDS)
        for field in descriptor.fields
    )


def _kind(field: FieldDescriptor) -> Callable[[Message, str, Any], None]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _nest_each if field.is_repeated else _nest
    return _extend if field.is_repeated else _set
