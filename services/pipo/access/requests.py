"""What a request must look like, whoever answers it; the first thing wrong is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipo import durations
from pipo.errors import BadRequest
from pipo.home.ports import PORT_HINT, PORT_MAX
from pipo.journal.versions import number_of
from pipo.rpc.stubs import pipo_pb2

PAGE_MAX = 1000
PACKETS_DEFAULT = 50
EVENTS_DEFAULT = 100
LOG_LINES_DEFAULT = 200
SOURCE_CHARS_MAX = 200
# Of a pipeline that is sent: its own text, and those of the files that it names.
TEXTS_CHARS_MAX = 8 * 1024 * 1024
FILES_MAX = 256
IDS_MAX = 1000
RESOLUTIONS = ("retry", "dead_letter", "drop")
KINDS = ("human", "agent")

PACKET_STATES = (
    "accepted",
    "processing",
    "writing",
    "verifying",
    "delivered",
    "filtered",
    "dead_lettered",
    "rejected",
    "branched",
    "escalated",
)


def check_start(request: pipo_pb2.StartRequest) -> None:
    """A file or a name, or a text with its name; and what the start says beside it (edge 322)."""
    sent = [field for field in ("name", "source", "files") if getattr(request, field)]
    if request.target and sent:
        raise BadRequest(
            f"both a file and {sent[0]} are given", hint="give the file, or name and source"
        )
    if sent:
        _sent(request)
    elif not request.target:
        raise BadRequest(
            "there is nothing to start",
            hint="name a pipeline or the path of its file, or send its name and source",
        )
    _overrides(request)


def check_restart(request: pipo_pb2.RestartRequest) -> None:
    _named(request.pipeline)
    _overrides(request)


def _sent(request: pipo_pb2.StartRequest) -> None:
    for field in ("name", "source"):
        if not getattr(request, field):
            raise BadRequest(
                f"{field} is missing", hint="a pipeline that is sent has a name and a source"
            )
    _texts(request.source, request.files)


def _overrides(request: pipo_pb2.StartRequest | pipo_pb2.RestartRequest) -> None:
    if request.HasField("ttl"):
        check_ttl(request.ttl)
    if request.HasField("listen") and not 1 <= request.listen <= PORT_MAX:
        raise BadRequest(f"listen is {request.listen}, and that is no port", hint=PORT_HINT)


def check_ttl(text: str) -> None:
    """Raises: BadRequest, unless it is a duration that a lifetime may have."""
    try:
        span_ms = durations.parse(text)
    except ValueError as error:
        raise BadRequest(f"ttl: {error}", hint="say how long, like 30m, 8h or 7d") from error
    if span_ms < 1:
        raise BadRequest(f"ttl is {text!r}: a lifetime has a length", hint="at least 1ms, like 30m")
    if durations.is_too_long(text):
        raise BadRequest(f"ttl is {text!r}", hint=f"at most {durations.LONGEST}")


class TooLarge(BadRequest):
    """Data over `engine.packet_limit` (decision 40)."""

    http_status = 413


def check_push(request: pipo_pb2.PushRequest, bytes_limit: int) -> None:
    _named(request.pipeline)
    if len(request.data) > bytes_limit:
        raise TooLarge(
            f"data has {len(request.data)} bytes, and {bytes_limit} is the limit",
            hint="engine.packet_limit in config.yaml is the limit; it can be up to 128MiB",
        )
    if not request.data:
        raise BadRequest("data is missing", hint="data is any JSON value; null is one")
    if len(request.source) > SOURCE_CHARS_MAX:
        raise BadRequest(
            f"source has {len(request.source)} characters", hint=f"at most {SOURCE_CHARS_MAX}"
        )


def check_ack(request: pipo_pb2.AckRequest) -> None:
    _named(request.pipeline)
    _identified(request.packet_id)


def check_list_packets(request: pipo_pb2.ListPacketsRequest) -> None:
    _named(request.pipeline)
    _limited("limit", request.limit)
    if request.state and request.state not in PACKET_STATES:
        raise BadRequest(
            f"no packet is ever {request.state!r}", hint=f"states are {', '.join(PACKET_STATES)}"
        )


def check_list_dead_letters(request: pipo_pb2.ListDeadLettersRequest) -> None:
    _named(request.pipeline)
    _limited("limit", request.limit)


def check_selection(request: pipo_pb2.ReplayRequest | pipo_pb2.PurgeRequest) -> None:
    """Which dead letters: either `ids` or `all` (edge 254)."""
    _named(request.pipeline)
    if bool(request.ids) is request.all:
        given = "both ids and all are" if request.all else "neither ids nor all is"
        raise BadRequest(f"{given} given", hint="give one of them")
    _ids(request.ids, f"1 to {IDS_MAX}; `all` takes every one")


def check_rerun(request: pipo_pb2.RerunRequest) -> None:
    """From where, and which packets: ids, all, or the last, those since, or both (edge 276)."""
    _named(request.pipeline)
    if not getattr(request, "from"):
        raise BadRequest("from is missing", hint="name a node that the packets passed, or output")
    if request.last < 0:
        raise BadRequest(f"last is {request.last}", hint="a whole number from 1")
    given = [field for field in ("ids", "all", "last", "since") if getattr(request, field)]
    if len(given) != 1 and given != ["last", "since"]:
        said = f"{' and '.join(given)} are given" if given else "no packets are named"
        raise BadRequest(said, hint="give one of ids, last, since and all; last goes with since")
    _ids(request.ids, f"1 to {IDS_MAX}; `all` takes every one")
    if request.since:
        try:
            durations.parse(request.since)
        except ValueError as error:
            raise BadRequest(
                f"since: {error}", hint="say how far back, like 30m, 24h or 7d"
            ) from error


def check_resolve(request: pipo_pb2.ResolveRequest) -> None:
    """What to do with whom, and who says so (edge 291)."""
    _named(request.pipeline)
    if bool(request.ids) is bool(request.packet_id):
        given = "both ids and packet_id are" if request.ids else "neither ids nor packet_id is"
        raise BadRequest(f"{given} given", hint="give one of them")
    _ids(request.ids, f"1 to {IDS_MAX} at once")
    _one_of("action", request.action, RESOLUTIONS)
    if request.by_kind:
        _one_of("by_kind", request.by_kind, KINDS)


def check_list_versions(request: pipo_pb2.ListVersionsRequest) -> None:
    _named(request.pipeline)


def check_get_version(request: pipo_pb2.GetVersionRequest | pipo_pb2.RollbackRequest) -> None:
    _named(request.pipeline)
    number_of(request.version)


def check_diff(request: pipo_pb2.DiffRequest) -> None:
    """Both versions are named; which exist is the journal's to say."""
    _named(request.pipeline)
    for field in ("from", "to"):
        if not getattr(request, field):
            raise BadRequest(f"{field} is missing", hint="name two versions, like 1 and v3")
        number_of(getattr(request, field))


def check_apply(request: pipo_pb2.ApplyRequest) -> None:
    _named(request.pipeline)
    if not request.source:
        raise BadRequest("source is missing", hint="source is the pipeline's whole text")
    _texts(request.source, request.files)


def _texts(source: str, files: Mapping[str, str]) -> None:
    total = len(source) + sum(len(text) for text in files.values())
    if total > TEXTS_CHARS_MAX or len(files) > FILES_MAX:
        raise TooLarge(
            f"{len(files)} files with {total} characters in all are sent",
            hint=f"at most {FILES_MAX} files, and {TEXTS_CHARS_MAX} characters with the source",
        )


def check_inspect(request: pipo_pb2.InspectRequest) -> None:
    _named(request.pipeline)
    _identified(request.packet_id)


def check_list_events(request: pipo_pb2.ListEventsRequest) -> None:
    _named(request.pipeline)
    _limited("limit", request.limit)
    if request.after_seq < 0:
        raise BadRequest(
            f"after_seq is {request.after_seq}", hint="a whole number from 0; 0 begins at the start"
        )


def check_logs(request: pipo_pb2.LogsRequest) -> None:
    _named(request.pipeline)
    _limited("tail", request.tail)
    if request.after < 0:
        raise BadRequest(f"after is {request.after}", hint="a byte offset from an earlier answer")


def _ids(given: Sequence[str], hint: str) -> None:
    ids = set(given)
    if len(ids) > IDS_MAX:
        raise BadRequest(f"{len(ids)} ids are given", hint=hint)
    if "" in ids:
        raise BadRequest("an id is empty", hint="ids are those of packets")


def _one_of(field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        said = f"is {value[:100]!r}" if value else "is missing"
        raise BadRequest(f"{field} {said}", hint=f"one of {', '.join(known)}")


def _named(pipeline: str) -> None:
    if not pipeline:
        raise BadRequest("pipeline is missing", hint="name the pipeline")


def _identified(packet_id: str) -> None:
    if not packet_id:
        raise BadRequest("packet_id is missing", hint="pipo packets lists them")


def _limited(field: str, value: int) -> None:
    if value > PAGE_MAX:
        raise BadRequest(f"{field} is {value}", hint=f"a whole number from 1 to {PAGE_MAX}")
