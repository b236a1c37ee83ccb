"""`fn` modules as the check sees them: read without running anything (`pipo.functions.outline`)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from pipo.functions.outline import Outline, outline
from pipo.lang.load import BYTES_LIMIT

MODULE_BYTES_LIMIT: Final = 16 * 1024 * 1024
"""As much as a packet may have by default."""


def read(path: Path) -> Outline:
    """What a module defines, from its syntax tree."""
    try:
        raw = read_limited(path, MODULE_BYTES_LIMIT)
    except (OSError, ValueError) as error:
        why = f"{path.name} cannot be read: {error}"
        return Outline(fault=why, place=f"{path.name} cannot be read")
    return outline(raw, path.name)


def read_limited(path: Path, limit: int = BYTES_LIMIT) -> bytes:
    """The bytes of a file that a pipeline names.

    Raises: OSError; ValueError, when they are more than `limit`, that of a pipeline's own file,
        or when it is none: a pipe would be waited for, perhaps for ever.
    """
    with open(path, "rb", opener=_at_once) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError("it is no regular file")
        raw = opened.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(f"the file is larger than {limit >> 20} MiB")
    return raw


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
