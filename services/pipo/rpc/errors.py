"""PipoError on one side of the wire is the same PipoError on the other.

An error travels as a gRPC status whose details hold one `pipo.v1.ErrorInfo` in a
`google.rpc.Status` (trailing metadata `grpc-status-details-bin`), so that any
gRPC client can read it. A failure of the transport itself has no details and is
mapped by its status code in `TRANSPORT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from google.rpc import status_pb2

from pipo import errors
from pipo.rpc import from_proto, to_proto, wire
from pipo.rpc.stubs import packet_pb2
from pipo.telemetry.logs import logger

DETAILS_KEY = "grpc-status-details-bin"
# What a client with default settings takes as metadata without complaint.
STRANGER_DETAILS_BYTES_MAX = 6 * 1024
MESSAGE_CHARS_MAX = 1024

# What grpc.aio says of an operation on a call that the other side has ended meanwhile.
_TORN_CALL = "Internal error from Core"
# What it says of a call on a channel that is closed, or about to be.
_CLOSED_CHANNEL = "Channel is clos"

Redact = Callable[[str], str]

_log = logger("rpc")


class Unanswered(errors.Unavailable):
    """The call itself failed: nobody there, gone, or too late. What was sent may have been done."""


_BY_CODE: dict[str, type[errors.PipoError]] = {
    cls.code: cls
    for cls in (
        errors.BadRequest,
        errors.NotFound,
        errors.InvalidState,
        errors.InvalidPipeline,
        errors.Rejected,
        errors.Unavailable,
        errors.Conflict,
        errors.Forbidden,
        errors.Internal,
    )
}

# Status code without details -> (class, message about `{whom}`, hint).
TRANSPORT: dict[str, tuple[type[errors.PipoError], str, str]] = {
    "UNAVAILABLE": (Unanswered, "{whom} does not answer", "it may be starting; try again"),
    "CANCELLED": (Unanswered, "{whom} ended the call", "it may be stopping; try again"),
    "DEADLINE_EXCEEDED": (Unanswered, "{whom} did not answer in time", "try again"),
    "RESOURCE_EXHAUSTED": (
        errors.BadRequest,
        "{whom} refused a message of this size: {details}",
        f"a message holds at most {wire.MESSAGE_BYTES_MAX // wire.MIB} MiB",
    ),
    "UNIMPLEMENTED": (
        errors.BadRequest,
        "{whom} does not know this operation",
        "are both sides of the same version?",
    ),
    "UNAUTHENTICATED": (errors.Forbidden, "{whom} wants a token", "pass a bearer token"),
    "PERMISSION_DENIED": (errors.Forbidden, "{whom} refused the token", "pass another token"),
    "INVALID_ARGUMENT": (errors.BadRequest, "{whom} refused the request: {details}", ""),
    "NOT_FOUND": (errors.NotFound, "{whom} does not have it: {details}", ""),
    "ALREADY_EXISTS": (errors.Conflict, "{whom} refused: {details}", ""),
    "FAILED_PRECONDITION": (errors.InvalidState, "{whom} refused: {details}", ""),
}


def info_of(error: errors.PipoError, redact: Redact | None = None) -> packet_pb2.ErrorInfo:
    """The error as a message, masked by `redact`."""
    masked = redact or _as_is
    return packet_pb2.ErrorInfo(
        code=error.code,
        message=masked(error.message),
        hint=masked(error.hint),
        diagnostics=[to_proto.diagnostic(f, masked) for f in getattr(error, "findings", ())],
        packet_id=getattr(error, "packet_id", ""),
    )


def error_of(info: packet_pb2.ErrorInfo) -> errors.PipoError:
    """The error that a message stands for; an unknown code is ours."""
    cls = _BY_CODE.get(info.code, errors.Internal)
    if cls is errors.InvalidPipeline:
        findings = [from_proto.finding(d) for d in info.diagnostics]
        return errors.InvalidPipeline(info.message, findings=findings, hint=info.hint)
    if cls is errors.Rejected:
        return errors.Rejected(info.message, packet_id=info.packet_id, hint=info.hint)
    return cls(info.message, hint=info.hint)


def moved(pipeline: str, here: str) -> errors.Unavailable:
    """What the process of `here` says to a call that was meant for another pipeline.

    The kernel may give a dead process's port to another one, sooner than whoever looked it up
    looks again: nothing was done, and the other pipeline is somewhere else by now.
    """
    return errors.Unavailable(
        f"pipeline {pipeline!r} does not run here: {here!r} has its port now",
        hint="it may be starting; try again",
    )


def bug(error: BaseException, method: str) -> errors.Internal:
    """What a caller is told of an exception that nobody meant; logs it, once."""
    _log.error("an exception nobody meant", action="rpc.bug", method=method, exc_info=error)
    return errors.Internal(
        f"{type(error).__name__} in {method}: this is a bug in Pipo",
        hint="the log of the service that answered holds the traceback; please report it with that",
    )


async def abort(
    context: grpc.aio.ServicerContext, error: errors.PipoError, redact: Redact | None = None
) -> None:
    """Ends the call with the error's status and details; never returns normally."""
    info = info_of(error, redact)
    if info.ByteSize() > STRANGER_DETAILS_BYTES_MAX and not _ours(context):
        shorten(info)
    code = grpc.StatusCode[errors.CODES[info.code].grpc]
    message = info.message[:MESSAGE_CHARS_MAX]
    status = status_pb2.Status(code=code.value[0], message=message)
    status.details.add().Pack(info)
    details = ((DETAILS_KEY, status.SerializeToString()),)
    await context.abort(code, message, trailing_metadata=details)


def shorten(info: packet_pb2.ErrorInfo) -> None:
    """Cuts an error to what a stock client takes, and says how much is missing."""
    info.message = info.message[:MESSAGE_CHARS_MAX]
    info.hint = info.hint[:MESSAGE_CHARS_MAX]
    left_out = 0
    while info.diagnostics and info.ByteSize() > STRANGER_DETAILS_BYTES_MAX - 64:
        del info.diagnostics[-1]
        left_out += 1
    if left_out:
        info.hint = f"{info.hint}\n{left_out} more findings are not shown".strip()


def from_rpc(error: grpc.RpcError, whom: str = "the service") -> errors.PipoError:
    """The PipoError behind a failed call; `whom` names the other side in transport failures."""
    info = _details(error)
    if info is not None:
        return error_of(info)
    code = error.code().name
    details = error.details() or code
    if details == _TORN_CALL:
        code = "CANCELLED"
    if code not in TRANSPORT:
        return errors.Internal(f"{whom} failed with {code}: {details}: this is a bug in Pipo")
    return _failed(code, whom, details)


def _failed(code: str, whom: str, details: str = "") -> errors.PipoError:
    """A failure of the transport, as TRANSPORT has it."""
    cls, message, hint = TRANSPORT[code]
    return cls(message.format(whom=whom, details=details), hint=hint)


@contextmanager
def calling(whom: str) -> Iterator[None]:
    """Calls inside raise PipoError where gRPC would raise its own; `whom` is for the message.

    A channel that is closed meanwhile, since its process is gone, cancels the calls under way
    and takes no further one: both are unanswered, and nobody has cancelled the caller.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, whom) from error
    except grpc.aio.UsageError as error:
        if not str(error).startswith(_CLOSED_CHANNEL):
            raise
        raise _failed("UNAVAILABLE", whom) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _failed("CANCELLED", whom) from error


def _details(error: grpc.RpcError) -> packet_pb2.ErrorInfo | None:
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            status = status_pb2.Status.FromString(value)
            info = packet_pb2.ErrorInfo()
            if any(packed.Unpack(info) for packed in status.details):
                return info
    return None


def _ours(context: grpc.aio.ServicerContext) -> bool:
    return any(
        key == "user-agent" and value.startswith(wire.USER_AGENT)
        for key, value in context.invocation_metadata() or ()
    )


def _as_is(text: str) -> str:
    return text
