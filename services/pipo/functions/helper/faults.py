"""What an exception of the author's code looks like to them: its message, and their own lines."""

from __future__ import annotations

import posixpath
import traceback
from collections.abc import Set
from typing import Final

# The pipeline masks secrets in a text before it cuts it, so it gets more than it shows.
TEXT_CHARS_LIMIT: Final = 32_000
LINES_LIMIT: Final = 4


def told(error: BaseException, files: Set[str]) -> str:
    """`ValueError: bad age (people.fn.py:12 in clean, from people.fn.py:4 in shape)`."""
    places = [_place(frame) for frame in _frames(error, files)]
    if isinstance(error, SyntaxError) and error.filename in files and error.lineno:
        places = [f"{error.filename}:{error.lineno}", *places]
    where = f" ({', from '.join(places[:LINES_LIMIT])})" if places else ""
    return f"{_text(error)}{where}"


def of_import(error: BaseException, files: Set[str], main: str) -> str:
    """`people.fn.py line 3: ModuleNotFoundError: No module named 'x': `import x``."""
    file, line, text = main, 1, ""
    if isinstance(error, SyntaxError) and error.filename in files:
        file, line, text = str(error.filename), error.lineno or 1, (error.text or "").strip()
        shown = f"{type(error).__name__}: {error.msg}"
    else:
        shown = _text(error)
        if frames := _frames(error, files):
            file, line = frames[0].filename, frames[0].lineno or 1
            text = (frames[0].line or "").strip()
    quoted = f": `{text[:80]}`" if text else ""
    return f"{posixpath.basename(file)} line {line}: {shown}{quoted}"


def _frames(error: BaseException, files: Set[str]) -> list[traceback.FrameSummary]:
    """The frames in the author's files, innermost first."""
    walked = traceback.walk_tb(error.__traceback__)
    own = [frame for frame in walked if frame[0].f_code.co_filename in files]
    # The innermost are enough; a recursion has thousands.
    return list(reversed(traceback.StackSummary.extract(iter(own[-LINES_LIMIT:]))))


def _place(frame: traceback.FrameSummary) -> str:
    inside = "" if frame.name == "<module>" else f" in {frame.name}"
    return f"{frame.filename}:{frame.lineno}{inside}"


def _text(error: BaseException) -> str:
    kind = type(error).__name__
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r:.80})"
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    shown = f"{kind}: {text}" if text else kind
    shown = shown[:TEXT_CHARS_LIMIT]
    return shown.encode("utf-8", "backslashreplace").decode()
