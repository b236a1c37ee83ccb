"""`pipo inspect`: a packet's story, one line per step (R012, R013, edge 390)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def story(pipeline: str, trace: packet_pb2.Trace, now_ms: int) -> list[str]:
    """The packet's head, its steps, and a section per fan-out copy; of a purged one its record."""
    if not trace.HasField("packet"):
        return [line for event in trace.events for line in _record(pipeline, event)]
    packet = trace.packet
    steps = [*trace.steps, *_unfinished(trace)]
    sections = [_head(pipeline, packet, now_ms), _steps(steps, _last_words(trace))]
    for copy in trace.copies:
        sections.append([f"copy {copy.id}  {copy.state}", *_steps(copy.steps, [])])
    lines: list[str] = []
    for section in sections:
        lines += ["", *section] if lines else section
    return lines


def _head(pipeline: str, packet: packet_pb2.Packet, now_ms: int) -> list[str]:
    if packet.state in SETTLED:
        so_far = f"after {duration(packet.updated_at - packet.received_at, places=2)}"
    else:
        so_far = f"for {duration(max(0, now_ms - packet.received_at), places=2)}"
    source = f" ({packet.source})" if packet.source else ""
    return [
        f"packet {packet.packet_id}  {pipeline} v{packet.version}  {packet.state}",
        f"received {stamp(packet.received_at)} via {packet.trigger}{printable(source)},"
        f" {packet.state} {so_far}",
    ]


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


def _unfinished(trace: packet_pb2.Trace) -> Iterable[packet_pb2.Step]:
    """The step that is being tried again: its attempts stand among the events alone so far."""
    packet = trace.packet
    if packet.state in SETTLED or not packet.attempt:
        return
    tries: list[packet_pb2.Event] = []
    for event in reversed(trace.events):
        if event.type != "step.retry" or len(tries) == packet.attempt:
            break
        tries.append(event)
    if tries:
        before = trace.steps[-1].at if trace.steps else packet.received_at
        yield packet_pb2.Step(
            step=packet.node,
            event="step.retrying",
            at=tries[0].at,
            ms=float(tries[0].at - before),
            attempts=packet.attempt,
            retries=[_retry(event) for event in reversed(tries)],
        )


def _retry(event: packet_pb2.Event) -> packet_pb2.Retry:
    told = msgspec.json.decode(event.detail)
    return packet_pb2.Retry(attempt=told["attempt"], wait_ms=told["wait"], error=told["error"])


def _last_words(trace: packet_pb2.Trace) -> list[str]:
    """What belongs below the packet's last step: why it failed or is held, what its check saw."""
    packet = trace.packet
    if packet.HasField("error"):
        return [f"error {error_text(packet.error)}"]
    words = [f"seen {_shown(packet.evidence)}"] if packet.HasField("evidence") else []
    if trace.events and trace.events[-1].type == "packet.held":
        error = msgspec.json.decode(trace.events[-1].detail)["error"]
        words.append(f"held {error['code']}: {error['message']}")
    return words


def _steps(steps: Sequence[packet_pb2.Step], last_words: Sequence[str]) -> list[str]:
    name_width = max((width(_name(s)) for s in steps), default=0)
    time_width = max((len(_took(s)) for s in steps), default=0)
    below = " " * (STEP_COLUMN + name_width)
    lines: list[str] = []
    for step in steps:
        lines.append(_step(step, name_width, time_width))
        lines += _indented(below, _below(step))
    return lines + _indented(below, last_words)


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


def _below(step: packet_pb2.Step) -> Iterable[str]:
    if step.HasField("data"):
        yield f"data {_shown(step.data)}"
    for retry in step.retries:
        yield f"retry {retry.attempt}: {retry.error} (waited {duration(retry.wait_ms, places=2)})"
    for note in step.notes:
        yield _note(note)


def _name(step: packet_pb2.Step) -> str:
    return plain_step(step.step) or "copies"


def _event(event: str) -> str:
    """`packet.dead_lettered` is `dead-lettered`."""
    return event.rpartition(".")[2].replace("_", "-")


def _took(step: packet_pb2.Step) -> str:
    return f"+{duration(step.ms, places=2)}" if step.HasField("ms") else ""


def _note(note: packet_pb2.Event) -> str:
    if not note.HasField("detail"):
        return note.type
    if note.type == "log":
        detail = msgspec.json.decode(note.detail)
        if isinstance(detail, dict) and isinstance(detail.get("message"), str):
            return f"log {detail.get('level', 'info')}: {detail['message']}"
    return f"{note.type} {_shown(note.detail)}"


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
