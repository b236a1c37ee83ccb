"""Every error Pipo raises on purpose.

    PipoError                     code, message, hint
    ├── BadRequest                the caller's words are off
    ├── NotFound                  no such pipeline, packet, version or route
    ├── InvalidState              the state does not allow it
    ├── InvalidPipeline           a pipeline file fails its check; carries the findings
    ├── Rejected                  an input's rule refused the packet; carries its id
    ├── Unavailable               not running, full, or over: try again later
    ├── Conflict                  somebody else holds the port, the file or the lease
    ├── Forbidden                 no or wrong token, or a scope too small
    └── Internal                  ours: this is a bug

A class exists because some caller treats it differently. `code` is the one word
that gRPC, REST and the command line share; `CODES` maps it to their statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class CodeStatus:
    """What one code becomes on each surface."""

    grpc: str
    http: int
    exit: int


# doors.md, REST.
CODES: dict[str, CodeStatus] = {
    "bad_request": CodeStatus("INVALID_ARGUMENT", 400, 1),
    "not_found": CodeStatus("NOT_FOUND", 404, 1),
    "invalid_state": CodeStatus("FAILED_PRECONDITION", 409, 1),
    "invalid_pipeline": CodeStatus("INVALID_ARGUMENT", 422, 1),
    "rejected": CodeStatus("FAILED_PRECONDITION", 422, 1),
    "unavailable": CodeStatus("UNAVAILABLE", 503, 1),
    "conflict": CodeStatus("ALREADY_EXISTS", 409, 1),
    "forbidden": CodeStatus("PERMISSION_DENIED", 403, 1),
    "internal": CodeStatus("INTERNAL", 500, 1),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the checker, placed in a file; line and col count from 1."""

    code: str
    severity: str
    message: str
    hint: str
    line: int
    col: int
    path: str = ""


class PipoError(Exception):
    """An error with a code, a message that names value and place, and the next thing to do."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class BadRequest(PipoError):
    code = "bad_request"


class NotFound(PipoError):
    code = "not_found"


class InvalidState(PipoError):
    code = "invalid_state"


class InvalidPipeline(PipoError):
    """A pipeline file that fails its check; `findings` says where and why."""

    code = "invalid_pipeline"

    def __init__(self, message: str, *, findings: Sequence[Finding] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)


class Rejected(PipoError):
    """An input's rule refused the packet; `packet_id` names the journaled rejection."""

    code = "rejected"

    def __init__(self, message: str, *, packet_id: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.packet_id = packet_id


class Unavailable(PipoError):
    code = "unavailable"


class Conflict(PipoError):
    code = "conflict"


class Forbidden(PipoError):
    code = "forbidden"


class Internal(PipoError):
    code = "internal"
