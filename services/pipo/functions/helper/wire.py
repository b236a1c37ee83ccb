"""What goes over the socket between a helper and whoever started it.

One frame: its kind, the lengths of head and body, the head (JSON), the body. A payload is the
body, so that it is JSON once and never text inside JSON.

    R  ready                     from the helper, once
    L  load {name, folder, modules: {dotted name: [path, text]}}
    C  call {name, function, wants_result}   with the data as body and `meta` in the head
    A  answer {} or {fault, text}; the body of a call's is the result
    S  the same, from a helper that can run no further call
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

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
# A head that is longer is no head of ours.
HEAD_BYTES_LIMIT: Final = 256 * 1024
# In a text of the log: how a level, its end and a line break stand there.
LEVEL_MARK: Final = "\x1e"
LEVEL_END: Final = "\x1f"
LINE_BREAK: Final = "\x1d"


def frame(kind: bytes, head: Any = None, body: bytes = b"") -> bytes:
    """One frame, whole."""
    raw = b"" if head is None else json.dumps(head, separators=(",", ":")).encode()
    return HEADER.pack(kind, len(raw), len(body)) + raw + body


def spent(answer: bytes) -> bytes:
    """The same answer, from a helper that can run no further call."""
    return SPENT + answer[1:]
