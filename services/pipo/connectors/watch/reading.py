"""The content of a watched file, exactly as it stood when its change counted. Blocking."""

from __future__ import annotations

import os

from pipo.connectors.watch.folder import is_inside, stamp_of
from pipo.connectors.watch.globs import Glob
from pipo.connectors.watch.snapshot import Stamp

CONTENT_BYTES_MAX = 1024 * 1024


class Moved(Exception):
    """The file is no longer what was looked at: the next look tells."""


def read_content(glob: Glob, name: str, stamp: Stamp) -> bytes | None:
    """What the file holds in the state that `stamp` tells of; None for one that is too large.

    Raises: Moved; OSError, when it cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        file = os.open(glob.path(name), flags)
    except (FileNotFoundError, NotADirectoryError):
        raise Moved from None
    try:
        _require(file, stamp)
        # Asked of the open file: a link may be another by now.
        if name and not is_inside(glob.root, os.readlink(f"/proc/self/fd/{file}")):
            raise Moved
        if stamp.size > CONTENT_BYTES_MAX:
            return None
        body = b""
        while len(body) <= CONTENT_BYTES_MAX:
            part = os.read(file, CONTENT_BYTES_MAX + 1 - len(body))
            if not part:
                break
            body += part
        _require(file, stamp)
    finally:
        os.close(file)
    return body if len(body) <= CONTENT_BYTES_MAX else None


def _require(file: int, stamp: Stamp) -> None:
    if stamp_of(os.fstat(file)) != stamp:
        raise Moved
