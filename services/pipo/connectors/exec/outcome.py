"""What a run comes to: the step's result, or the error that it fails with. Pure.

What a program prints is masked before it is cut, and before it becomes data: half a secret
is one too.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipo import payload
from pipo.connectors.contract import Refused, WriteFailed
from pipo.connectors.exec.program import Program
from pipo.durations import show
from pipo.telemetry.redaction import mapped

INFO_BYTES = 64 * 1024
OUTPUT_BYTES = 1024 * 1024
# A secret that begins before the cut is seen whole: one has up to 64 KiB, three times that in a URL.
MARGIN_BYTES = 192 * 1024
EXCERPT_CHARACTERS = 300

Mask = Callable[[str], str]
_UNSHOWN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Stream:
    """The end of what a program printed; `bytes_total` is how much it was."""

    end: bytes
    bytes_total: int

    @property
    def whole(self) -> bool:
        return len(self.end) == self.bytes_total


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its exit code, or the signal that ended it."""

    code: int | None
    signal: int | None
    timed_out: bool
    duration_ms: int
    stdout: Stream
    stderr: Stream


def failure(program: Program, ended: Ended, mask: Mask) -> WriteFailed | None:
    """Why a run does not count as a success; None when it does."""
    if ended.timed_out:
        after = show(program.timeout_s * 1000.0)
        why = f"did not end within its timeout of {after} and was ended, with its process group"
    elif ended.signal is not None:
        why = f"was ended by {_name_of(ended.signal)}"
    elif ended.code not in program.success:
        why = f"exited with code {ended.code}"
    else:
        return None
    told = excerpt(ended.stderr, mask) or excerpt(ended.stdout, mask)
    return WriteFailed(f"{program.shown} {why}{f': {told}' if told else ''}")


def excerpt(stream: Stream, mask: Mask) -> str:
    """The end of a stream, on one line. It is masked before it is cut."""
    words = _UNSHOWN.sub(" ", mask(_text(stream))).strip()
    cut = not stream.whole or len(words) > EXCERPT_CHARACTERS
    return f"…{words[1 - EXCERPT_CHARACTERS :]}" if cut else words


def missing(program: Program, files: Sequence[str]) -> WriteFailed | None:
    """The error of a success that lacks files it should have made; None when it lacks none."""
    if not files:
        return None
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return WriteFailed(
        f"{program.shown} did not make {files[0]}{more}",
        hint="a success leaves every file of `outputs` behind",
    )


def result(kind: str, program: Program, ended: Ended, mask: Mask) -> Any:
    """What a transform's data becomes.

    Raises: Refused, for more output than a result may hold; WriteFailed, for JSON that is none.
    """
    if kind == "info":
        return {
            "exit_code": ended.code,
            "stdout": _end(ended.stdout, mask),
            "stderr": _end(ended.stderr, mask),
            "duration_ms": ended.duration_ms,
            "files": list(program.files),
        }
    if ended.stdout.bytes_total > OUTPUT_BYTES:
        raise Refused(
            f"{program.shown} printed {ended.stdout.bytes_total} bytes, "
            f"more than the 1 MB that `result: {kind}` may hold",
            hint="print less, or write a file and name it in `outputs`",
        )
    if kind == "text":
        return mask(_text(ended.stdout))
    try:
        return mapped(payload.decode(ended.stdout.end), mask)
    except payload.BadPayload as error:
        told = excerpt(ended.stdout, mask)
        raise WriteFailed(
            f"{program.shown} printed what is no JSON: {error}{f': {told}' if told else ''}",
            hint="with `result: json` standard output is one JSON value",
        ) from error


def _end(stream: Stream, mask: Mask) -> str:
    """The last 64 KB of a stream, by characters where it was cut within one."""
    masked = mask(_text(stream)).encode()
    return masked[-INFO_BYTES:].decode("utf-8", "ignore")


def _text(stream: Stream) -> str:
    end = stream.end
    if not stream.whole:
        # What continues a character that was cut off is no error of the program's.
        end = end[next((n for n in range(4) if end[n : n + 1] < b"\x80" or end[n] >= 0xC0), 0) :]
    return end.decode("utf-8", "replace")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
