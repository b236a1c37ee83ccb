"""What goes over the socket between a helper and whoever started it.

One frame: its kind, the lengths of head and body, the head (JSON), the body. A payload is the
body, so that it is JSON once and never text inside JSON.

    R  ready   from the helper, once
    L  load    the body is {name, folder, modules: {dotted name: [path, text]}}
    C  call    {name, function, meta, wants_result}, and the data as body
    A  answer  nothing, and the result as body of a call's; or {fault, text}
    S          the same, from a helper that can run no further call
"""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct("!cII")
READY: Final = b"R"
LOAD: Final = b"L"
CALL: Final = b"C"
ANSWER: Final = b"A"
SPENT: Final = b"S"

# Kinds of `fault`.
RAISED: Final = "raised"
UNFIT: Final = "unfit"
TOO_LARGE: Final = "too_large"
MEMORY: Final = "memory"
MISSING: Final = "missing"

# The exit status of a helper that can no longer answer.
LOST_PIPE: Final = 97
OUT_OF_MEMORY: Final = 98
# A head that is longer is no head of ours.
HEAD_BYTES_LIMIT: Final = 256 * 1024
# In a text of the log: how a level, its end and a line break stand there.
LEVEL_MARK: Final = "\x1e"
LEVEL_END: Final = "\x1f"
LINE_BREAK: Final = "\x1d"


def frame(kind: bytes, head: bytes = b"", body: bytes = b"") -> bytes:
    """One frame, whole; `head` is JSON text."""
    return HEADER.pack(kind, len(head), len(body)) + head + body


def spent(answer: bytes) -> bytes:
    """The same answer, from a helper that can run no further call."""
    return SPENT + answer[1:]
