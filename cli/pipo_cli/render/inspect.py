"""`pipo inspect`: a packet's story, one line per step (R012, R013, edge 390)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.packets import error_text, plain_step
from pipo_cli.render.tables import pad, printable, width
from pipo_cli.render.times import duration, stamp, time_of_day

MARGIN = "  "
# Where the name of a step begins: the margin, `21:13:48.263`, two blanks.
STEP_COLUMN = 16
EVENT_WIDTH = 14
# Longer payloads are cut; --json has them whole.
DATA_CHARS_MAX = 4000

SETTLED = {"delivered", "filtered", "dead_lettered", "rejected"}
RETRY = "step.retry"
RETRYING = "step.retrying"
HELD = "packet.held"
DELIVERED = "packet.delivered"
WRITTEN = "output.written"
UNVERIFIED = "delivery.unverified"
AWAITING_ACK = "delivery.awaiting_ack"
# Events that tell why a unit goes no further, or not now.
WITH_ERROR = {HELD, "packet.dead_lettered", "packet.dropped", "packet.escalated"}
RESOLVED = "packet.resolved"
# Events by which someone took a unit up again.
TAKEN_UP = {RESOLVED, "dlq.replayed", "packet.rerun"}
VERIFY = "$verify"
SEEN = "seen "
WITHHELD = (
    "its data is withheld: a secret of this stopped pipeline has no value here; "
    "start the pipeline, or set the secret"
)


def story(pipeline: str, trace: packet_pb2.Trace, now_ms: int) -> list[str]:
    """The packet's head, its steps, and a section per fan-out copy; of a purged one its record."""
    if not trace.HasField("packet"):
        return [line for event in trace.events for line in _record(pipeline, event)]
    packet = trace.packet
    words = _last_words(trace.events)
    if packet.HasField("error"):
        words = [f"error {error_text(packet.error)}"]
    elif packet.HasField("evidence"):
        # Its last event tells the same once more.
        others = [word for word in words if not word.startswith(SEEN)]
        words = [f"{SEEN}{_shown(packet.evidence)}", *others]
    result = packet.result if packet.HasField("result") else None
    sections = [
        _head(pipeline, packet, now_ms, bool(trace.withheld)),
        _unit(packet.state, trace.steps, trace.events, words, result, now_ms),
    ]
    for copy in trace.copies:
        words = _last_words(copy.events)
        told = _unit(copy.state, copy.steps, copy.events, words, None, now_ms)
        sections.append([f"copy {copy.id}  {copy.state}", *told])
    lines: list[str] = []
    for section in sections:
        lines += ["", *section] if lines else section
    return lines


def _unit(
    state: str,
    steps: Sequence[packet_pb2.Step],
    events: Sequence[packet_pb2.Event],
    last_words: Sequence[str],
    result: bytes | None,
    now_ms: int,
) -> list[str]:
    """One packet's or copy's steps, with the one that is under way."""
    under_way = [] if state in SETTLED else _under_way(steps, events)
    own_words = [_own_words(event) for event in _own_events(steps, events)]
    told = [*zip(steps, own_words, strict=True), *((step, []) for step in under_way)]
    return _steps(told, last_words, result, now_ms)


def _own_events(
    steps: Sequence[packet_pb2.Step], events: Sequence[packet_pb2.Event]
) -> Iterable[packet_pb2.Event | None]:
    """The event that each step is, behind those of its retries and notes."""
    place = -1
    for step in steps:
        place += 1 + len(step.retries) + len(step.notes)
        own = events[place] if place < len(events) else None
        yield own if own is not None and own.type == step.event else None


def _own_words(event: packet_pb2.Event | None) -> list[str]:
    """Why a step was an end, or who took the unit up again: of each life, not only the last."""
    if event is None or not event.HasField("detail"):
        return []
    detail = msgspec.json.decode(event.detail)
    if event.type in WITH_ERROR:
        return [_failure(detail)]
    return [_taken_up(event.type, detail)] if event.type in TAKEN_UP else []


def _failure(detail: dict[str, Any]) -> str:
    error = detail.get("error", detail)
    return f"error {error['code']}: {error['message']}"


def _taken_up(type_: str, detail: dict[str, Any]) -> str:
    """`retry by ada: provider back up`, `by ada`."""
    action = f"{detail['action']} " if type_ == RESOLVED else ""
    reason = f": {detail['reason']}" if detail.get("reason") else ""
    return f"{action}by {detail['by']}{reason}"


def _head(pipeline: str, packet: packet_pb2.Packet, now_ms: int, withheld: bool) -> list[str]:
    if packet.state in SETTLED:
        so_far = f"after {duration(packet.updated_at - packet.received_at, places=2)}"
    else:
        so_far = f"for {duration(max(0, now_ms - packet.received_at), places=2)}"
    source = f" ({packet.source})" if packet.source else ""
    return [
        f"packet {packet.packet_id}  {pipeline} v{packet.version}  {packet.state}",
        f"received {stamp(packet.received_at)} via {packet.trigger}{printable(source)},"
        f" {packet.state} {so_far}",
        *_upstream(packet),
        *([WITHHELD] if withheld else []),
    ]


def _upstream(packet: packet_pb2.Packet) -> list[str]:
    """Which packet of the sender it was made of, and how many hops it has come (C025)."""
    if not packet.upstream:
        return []
    came = msgspec.json.decode(packet.upstream)
    of = f"{came['packet_id']} of {came['pipeline']}"
    key = "" if came["key"] == came["packet_id"] else f", key {came['key']}"
    return [f"handed over from {printable(of)}{printable(key)}, hop {came['depth']}"]


def _record(pipeline: str, event: packet_pb2.Event) -> list[str]:
    """What a purge leaves of a packet: who did it, and why the packet was dead (R027, R028)."""
    told = msgspec.json.decode(event.detail)
    lines = [
        f"packet {event.packet_id}  {pipeline} v{told['version']}  purged",
        f"received {stamp(told['received_at'])}, purged {stamp(event.at)}"
        f" by {printable(told['by'])}",
    ]
    if error := told.get("error"):
        lines.append(f"error {error['code']}: {printable(error['message'])}")
    return lines


def _under_way(
    steps: Sequence[packet_pb2.Step], events: Sequence[packet_pb2.Event]
) -> Iterable[packet_pb2.Step]:
    """The step whose end is to come, as far as it was heard of: its tries, what it waits for."""
    # Every event before is a step, or the retry or note of one.
    since = events[sum(1 + len(step.retries) + len(step.notes) for step in steps) :]
    if not since:
        return
    last = since[-1]
    tries = [event for event in since if event.type == RETRY]
    others = [event for event in since if event.type != RETRY]
    yield packet_pb2.Step(
        step=VERIFY if last.node == "delivered" else last.node,
        event=RETRYING if last.type == RETRY else last.type,
        at=last.at,
        ms=float(last.at - steps[-1].at) if steps else None,
        attempts=len(tries) + sum(event.type == HELD for event in others),
        retries=[_retry(event) for event in tries],
        # Why it is held stands below, in words.
        notes=[event for event in others if event.type != HELD],
    )


def _retry(event: packet_pb2.Event) -> packet_pb2.Retry:
    told = msgspec.json.decode(event.detail)
    return packet_pb2.Retry(attempt=told["attempt"], wait_ms=told["wait"], error=told["error"])


def _last_words(events: Sequence[packet_pb2.Event]) -> list[str]:
    """What belongs below a unit's last step: why it failed or is held, what its check saw."""
    if not events or not events[-1].HasField("detail"):
        return []
    last = events[-1]
    detail = msgspec.json.decode(last.detail)
    if last.type in WITH_ERROR:
        if last.type != HELD:
            return [_failure(detail)]
        error = detail["error"]
        return [f"held {error['code']}: {error['message']}"]
    if last.type == DELIVERED and "evidence" in detail:
        return [f"{SEEN}{_shown(msgspec.json.encode(detail['evidence']))}"]
    return []


def _steps(
    story: Sequence[tuple[packet_pb2.Step, list[str]]],
    last_words: Sequence[str],
    result: bytes | None,
    now_ms: int,
) -> list[str]:
    """A line for each step, with what belongs below it; `result` is that of the last write."""
    steps = [step for step, _ in story]
    writes = [n for n, step in enumerate(steps) if step.event == WRITTEN]
    last_write = writes[-1] if writes and result is not None else None
    name_width = max((width(_name(s)) for s in steps), default=0)
    time_width = max((len(_took(s)) for s in steps), default=0)
    below = " " * (STEP_COLUMN + name_width)
    lines: list[str] = []
    told: list[str] = []
    for n, (step, own_words) in enumerate(story):
        lines.append(_step(step, name_width, time_width))
        told = list(_below(step, now_ms))
        told += [word for word in own_words if word not in told]
        if n == last_write and result is not None:
            told.append(f"result {_shown(result)}")
        lines += _indented(below, told)
    return lines + _indented(below, [word for word in last_words if word not in told])


def _step(step: packet_pb2.Step, name_width: int, time_width: int) -> str:
    attempts = f"{step.attempts} attempts" if step.attempts > 1 else ""
    cells = [
        time_of_day(step.at),
        pad(_name(step), name_width),
        pad(_event(step.event), EVENT_WIDTH),
        pad(_took(step), time_width),
        attempts,
    ]
    return (MARGIN + "  ".join(cells)).rstrip()


def _below(step: packet_pb2.Step, now_ms: int) -> Iterable[str]:
    if step.HasField("data"):
        yield f"data {_shown(step.data)}"
    for retry in step.retries:
        yield f"retry {retry.attempt}: {retry.error} ({_wait(step, retry, now_ms)})"
    for note in step.notes:
        yield from _note(note)


def _wait(step: packet_pb2.Step, retry: packet_pb2.Retry, now_ms: int) -> str:
    over_at = step.at + round(retry.wait_ms)
    waits = step.event == RETRYING and retry.attempt == step.retries[-1].attempt
    if waits and over_at > now_ms:
        return f"waits {duration(retry.wait_ms, places=2)}, until {time_of_day(over_at)}"
    return f"waited {duration(retry.wait_ms, places=2)}"


def _name(step: packet_pb2.Step) -> str:
    return plain_step(step.step) or "copies"


def _event(event: str) -> str:
    """`packet.dead_lettered` is `dead-lettered`."""
    return event.rpartition(".")[2].replace("_", "-")


def _took(step: packet_pb2.Step) -> str:
    return f"+{duration(step.ms, places=2)}" if step.HasField("ms") else ""


def _note(note: packet_pb2.Event) -> Iterable[str]:
    if not note.HasField("detail"):
        yield note.type
        return
    detail = msgspec.json.decode(note.detail)
    if note.type == "log" and isinstance(detail, dict) and isinstance(detail.get("message"), str):
        yield f"log {detail.get('level', 'info')}: {detail['message']}"
    elif note.type == UNVERIFIED:
        yield f"error {detail['code']}: {detail['message']}"
        if detail.get("evidence") is not None:
            yield f"{SEEN}{_shown(msgspec.json.encode(detail['evidence']))}"
    elif note.type == RESOLVED:
        yield f"resolved: {_taken_up(note.type, detail)}"
    elif note.type == AWAITING_ACK:
        yield f"waits for an ack until {stamp(detail['deadline'])}"
    else:
        yield f"{note.type} {_shown(note.detail)}"


def _shown(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    if len(text) <= DATA_CHARS_MAX:
        return text
    return f"{text[:DATA_CHARS_MAX]}… (cut; {len(payload):,} bytes, whole with --json)"


def _indented(indent: str, texts: Iterable[str]) -> list[str]:
    """Each text with its first line at `indent` and any further ones two deeper."""
    lines: list[str] = []
    for text in texts:
        first, *rest = printable(text).split("\n")
        lines += [indent + first, *(f"{indent}  {line}" for line in rest)]
    return lines
