"""What a connector is, and who calls it, when, and what each error causes.

A connector is one folder `services/pipo/connectors/<name>/`:

    manifest.py    MANIFEST: names, the JSON Schema of each `with:`, checks, effects. Pure data.
    input.py       build(specs, context) -> Input       one object per pipeline for all its inputs
    tap.py         build(context) -> Step
    transform.py   build(context) -> Step
    output.py      build(context) -> Output
    checks.py      build(context) -> Checks

and has whichever of them it needs. `registry.py` finds the folders; adding one
touches no other file. A role that the manifest declares and that has no module
is known to the language and refuses a start with its name.

Life of a connector object: `build` is cheap and pure; `open` (idempotent) does
all file and network work; `close` is safe twice and before `open`. It is not
called when the process is killed. All run on the pipeline's (or the checker's)
event loop; blocking work belongs on a thread of the connector's own.

Settings arrive rendered: one place in the runner renders `with:`, resolves
fields marked `x-path` against the pipeline's folder and keeps them inside it
(decision 23). A connector never renders a template.

Schemas are JSON Schema 2020-12 of a closed object, with three words of ours on a
property: `x-literal: true` (takes no template), `x-path: true` (a path, relative
to the pipeline's file, its default written out; `or-url`: or an http(s) address; `or-name`: or a name on PATH;
`x-base: key`: relative to the path `key`) and `x-keep-keys` (a missing value becomes null instead of
leaving its key out: `true` in the map itself, `deep` at any depth). Descriptions become the docs and the editor's help.

Control errors, and no others, tell the caller what to do:

    Refused         no retry can help; the step fails for good as its policy says
    RetryAfter      not before `seconds`
    WriteFailed     this unit failed, or the whole call; the retry policy decides
    CheckError      a look could not run; counts as a failed attempt (D019)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from pipo.clock import Clock
from pipo.home import Home
from pipo.records import record

if TYPE_CHECKING:
    import asyncio
    import socket

Schema = Mapping[str, Any]
Effect = Literal["external", "write", "spend"]
Repeat = Literal["first", "recovered", "repeated"]

UNIVERSAL_CHECKS = ("ack", "external", "none")


class ConnectorError(Exception):
    """A failure with its message and, where one is known, the way out."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refused(ConnectorError):
    """No retry can help."""


class RetryAfter(ConnectorError):
    """The other side asked for a pause of `seconds`."""

    def __init__(self, message: str, *, seconds: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.seconds = seconds


class WriteFailed(ConnectorError):
    """One unit was not written, its neighbours may have been; raised by a call, none was."""


class CheckError(ConnectorError):
    """A look at the destination could not run."""


# ── manifests ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Role:
    """One thing a connector can be. `effect` is what repeating it means to a rerun (R033)."""

    schema: Schema
    effect: Effect | None = None


def _nothing(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class OutputRole(Role):
    """An output: the checks it offers beside the universal ones, and whether it batches.

    `keyed` says that it knows what it wrote by its key: a repeated write changes nothing. What is
    only printed or sent is there twice (O043, O047). `target` picks from the rendered settings
    what a check needs to find the destination (a path, a table), never the payload.
    """

    checks: tuple[str, ...] = ()
    batches: bool = False
    keyed: bool = True
    target: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _nothing


@dataclass(frozen=True, slots=True)
class Manifest:
    """A connector's whole self-description; the single source of check, schema and docs."""

    name: str
    summary: str
    input: Role | None = None
    tap: Role | None = None
    transform: Role | None = None
    output: OutputRole | None = None
    checks: Mapping[str, Role] = field(default_factory=dict)
    agent: Role | None = None


# ── inputs ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One entry of `inputs:` as an input connector sees it; `settings` are rendered.

    `respond_status` is the HTTP status of a packet that the input's rules reject.
    """

    name: str
    settings: Mapping[str, Any]
    format: str
    respond_status: int = 422


@record
class Arrival:
    """A packet on its way in.

    `data` is the parsed value; `state` holds entries of the input's durable state
    that commit in the packet's own transaction. With a `key`, what `source` has sent
    under it before is answered with the packet that it made; `upstream` says where
    such a packet was handed over from (facts 4.1).
    """

    input: str
    data: Any
    trigger: str
    source: str
    state: Mapping[str, str | None] = field(default_factory=dict)
    key: str | None = None
    upstream: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The packet is on disk, in `state`; a `duplicate` has been there before (edge 244)."""

    packet_id: str
    duplicate: bool = False
    state: str = "accepted"


@dataclass(frozen=True, slots=True)
class RejectedArrival:
    """A rule refused the packet and the rejection is on disk."""

    packet_id: str
    message: str
    rule: str


@dataclass(frozen=True, slots=True)
class RefusedArrival:
    """Nothing was kept: the buffer is full, or intake has ended. Try again later."""

    message: str
    hint: str = ""


Taken = Accepted | RejectedArrival | RefusedArrival


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a packet ended, or where it stands at the deadline."""

    state: str
    error: str = ""


class Intake(Protocol):
    """What an input may ask of its pipeline process."""

    async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        """What became of each arrival, in order, once all of it is on disk.

        Durable: every Accepted and RejectedArrival survives a power cut.
        Cancelled: the arrivals may still be accepted.
        """

    async def settled(self, packet_id: str, timeout_s: float) -> Settlement:
        """How the packet ended; its state at the timeout when it has not."""

    async def state(self, input_name: str) -> Mapping[str, str]:
        """The input's durable state, as last committed."""

    async def remember(self, input_name: str, state: Mapping[str, str | None]) -> None:
        """Entries of the input's durable state that no packet carries, once they are on disk.

        None forgets an entry, here and in an arrival.
        """


@record
class HttpRequest:
    """One request for a pipeline's http inputs; `body` is the raw body, whole."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    peer: str
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, by its lower-case name."""
        for found, value in self.headers:
            if found.lower() == name:
                return value
        return None


@record
class HttpAnswer:
    """What goes back; `body` is JSON text."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = ()


class Input(Protocol):
    """All inputs of one kind in one pipeline.

    `open` is called once the pipeline takes packets and returns when the inputs
    listen; `close` ends intake and returns when no `take` of theirs is in flight.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...


@runtime_checkable
class HttpInput(Input, Protocol):
    """An input that answers HTTP requests, whoever carried them here.

    It is asked, in place of asking: a drain leaves it open, to say why nothing more is taken.
    """

    @property
    def port(self) -> int | None:
        """The port on 127.0.0.1 that it serves itself, once it is open; None without one."""

    def early(self, request: HttpRequest) -> HttpAnswer | None:
        """A refusal that needs no body (404, 405, 401 by header), or None. `body` is empty."""

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """The whole answer; never raises for anything a client can send."""

    def arrival(self, request: HttpRequest) -> Arrival | HttpAnswer | None:
        """The one packet of a request that is answered as soon as it is taken, or its refusal.

        None when only `answer` will do: it waits, holds several packets, or is large.
        """

    async def answer_arrivals(self, arrivals: Sequence[Arrival]) -> list[HttpAnswer]:
        """What `answer` says to the requests of these arrivals, taken together in one commit."""

    def routes(self) -> Mapping[str, str]:
        """Each input and its route, such as `POST /signups`, for status."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """What another pipeline hands over: one unit of its packet `packet_id`, under its key."""

    sender: str
    packet_id: str
    key: str
    depth: int
    data: Any


@runtime_checkable
class HandOverInput(Input, Protocol):
    """An input that takes packets from other pipelines, whoever carried them here.

    It is asked, as an `HttpInput` is.
    """

    async def deliver(self, handed: Sequence[HandOver]) -> list[Taken | Refused]:
        """What became of each, in order, once all of it is on disk.

        Refused: nothing of it was kept, and no retry can help.
        Cancelled: as `Intake.take`.
        """


@runtime_checkable
class BotReader(Protocol):
    """An input that reads bots, of which each has one reader in a home; known once it is open."""

    @property
    def bots(self) -> Sequence[str]:
        """The bots' own numbers, for the registry."""


# ── steps ────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class StepCall:
    """One run of one step on one unit; `settings` are rendered.

    `notes` collects events that commit with the step: (type, detail).
    """

    unit: str
    node: str
    data: Any
    meta: Mapping[str, Any]
    settings: Mapping[str, Any]
    notes: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The same each time the step runs on the unit (edge 105)."""
        return f"{self.unit}:{self.node}"


class PureStep(Protocol):
    """A tap or transform that touches nothing outside: it runs straight on (design §4.2)."""

    pure: Literal[True]

    def run(self, call: StepCall) -> Any:
        """The step's result; a tap's is ignored. Raises ConnectorError."""


class OutsideStep(Protocol):
    """A tap or transform that reaches outside: a commit stands before and after it."""

    pure: Literal[False]

    async def open(self) -> None: ...

    async def run(self, call: StepCall) -> Any:
        """The step's result; a tap's is ignored. Raises ConnectorError."""

    async def close(self) -> None: ...


Step = PureStep | OutsideStep


# ── outputs ──────────────────────────────────────────────────────────────────


@record
class WriteUnit:
    """One unit to write.

    `repeat` says whether its write may have happened before: `first` never,
    `recovered` since the last committed mark, `repeated` at any time (design §4).
    `trigger`, `source` and `upstream` are those of the packet's `meta`: where it came from.
    `prepared` is what the output's `prepare` made of it, None where nobody asked it.
    """

    id: str
    key: str
    data: Any
    settings: Mapping[str, Any]
    repeat: Repeat
    trigger: str = ""
    source: str = ""
    upstream: Mapping[str, Any] | None = None
    prepared: Any = None


@dataclass(frozen=True, slots=True)
class Flush:
    """What one `write` did: per unit, in order, its JSON result or why it failed.

    `marks` are durable notes for this output (for a file: path -> size, None: forgotten) that the
    caller commits together with these units; `open` gets the last committed ones.
    """

    results: Sequence[Mapping[str, Any] | WriteFailed | RetryAfter | Refused]
    marks: Mapping[str, int | None] = field(default_factory=dict)


class Output(Protocol):
    """The one destination of a pipeline.

    Calls to `write` never overlap for one place (`place`); different places may.
    """

    async def open(self, marks: Mapping[str, int]) -> None: ...

    def place(self, settings: Mapping[str, Any], key: str) -> str:
        """What a group shares: the database or file path. Units of one place are written together.

        `key` is the unit's own: the place of a unit that is written by itself.
        """

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        """The key that rendered settings set themselves (O052), or None."""

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> Any:
        """What `write` needs of the unit and would make again; None for nothing.

        Touches no destination.
        Raises: Refused or WriteFailed, for what can be seen without that.
        """

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        """Writes units of one place, in order, and returns when they are durable.

        A group (`atomic=False`): per unit its result or its own failure; a bad unit fails alone.
        A batch (`atomic=True`): a result for every unit, or an error and no trace of any of them.
            The error is that of the first bad unit found, in the words that it has when it is written
            alone; it is never Refused, since the rest may fare better in two halves. A single
            unit is best written as a group: then Refused says that no retry can help.
        A key that stands twice in one call is written once, and both units have a result.
        Nothing of a failed call stays open: the same units may be written again, whole or in parts.
        Raises: WriteFailed or RetryAfter when the whole call failed and nothing was kept. What broke,
            such as a connection, the next call makes anew: nobody else opens it again.
        Cancelled: the write may or may not have happened.
        """

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """Opens a destination that has unsettled units, so that a crash's remains are rolled back."""

    async def close(self) -> None: ...


@runtime_checkable
class Demanding(Protocol):
    """An output or a step that needs more of its surroundings, such as a set-up bot or a program."""

    def require(self, settings: Mapping[str, Any]) -> None:
        """Refuses the start of a version with these settings, not rendered; asked once it is open.

        Raises: PipoError, with what is missing and how to bring it.
        """


# ── checks ───────────────────────────────────────────────────────────────────


@record
class Target:
    """What to look at: the check, its rendered settings, the write's result, the output's place."""

    check: str
    settings: Mapping[str, Any]
    result: Any
    output: Mapping[str, Any]


@record
class Seen:
    """What one look found; `evidence` is JSON-able: what was looked at and what was there."""

    value: Any
    evidence: Mapping[str, Any]


@record
class Passed:
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pending:
    """Not yet; `why` is the text a person reads when the deadline comes.

    The destination asked for a pause of `pause_s` before the next look. With `news` it
    tells by itself that something may have changed: the next look comes when that is
    done, and at the deadline.
    """

    why: str
    evidence: Mapping[str, Any]
    pause_s: float = 0.0
    news: asyncio.Future[None] | None = None


@dataclass(frozen=True, slots=True)
class Impossible:
    """It can never pass."""

    why: str
    evidence: Mapping[str, Any]


Judgement = Passed | Pending | Impossible


class Checks(Protocol):
    """A connector's checks. Rhythm, deadlines and retries belong to the checker."""

    def place(self, target: Target) -> str:
        """What looks share: one database, one file. Looks at one place are handed over together."""

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        """One read-only look for each target, in order. Calls for one place never overlap."""

    def judge(self, target: Target, seen: Seen) -> Judgement:
        """Whether what was seen is what was expected. Pure."""

    async def close(self) -> None: ...


# ── what a connector gets ────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Context:
    """A connector's surroundings in a pipeline process."""

    pipeline: str
    folder: Path
    clock: Clock
    log: Callable[..., None]
    """log(level, message, **keys): one line in the pipeline's log, redacted."""
    packet_limit: int = 16 * 1024 * 1024
    print_line: Callable[[str], None] = print
    """Writes one line to the runner's standard output."""
    home: Home | None = None
    """The home that the pipeline runs in."""
    mask: Callable[[str], str] = str
    """A text with every secret masked. What is cut is masked first: half a secret is one too."""
    hide: Callable[[str], object] = len
    """Makes a text a secret, for values that no `secrets:` entry holds."""


@dataclass(frozen=True, slots=True)
class InputContext(Context):
    """What an input gets beside its specs.

    `listening` is the port of its own that the start has reserved for an http input: connections
    wait there until it serves them.
    """

    intake: Intake = field(kw_only=True)
    listening: socket.socket | None = None


@dataclass(frozen=True, slots=True)
class CheckContext:
    """A check's surroundings in a checker; `home` is the one that its pipelines run in."""

    clock: Clock
    home: Home | None = None
