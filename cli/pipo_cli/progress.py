"""A sign of life for long work: on stderr, and never in JSON."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipo_cli.settings import Settings, plain

# Off a terminal only work that takes longer than this is told of: scripts stay quiet.
SILENT_S = 2.0


@contextmanager
def progress(settings: Settings, words: str) -> Iterator[None]:
    """Shows `words` on a terminal while the block runs, and takes them away after it.

    Elsewhere they are a line, once the block has run for SILENT_S.
    """
    if settings.json:
        yield
    elif not sys.stderr.isatty():
        with _told_after(SILENT_S, words):
            yield
    elif plain():
        _tell(words)
        yield
    else:
        from rich.console import Console

        with Console(stderr=True).status(words):
            yield


@contextmanager
def _told_after(silent_s: float, words: str) -> Iterator[None]:
    timer = threading.Timer(silent_s, _tell, [words])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # A line that has begun ends before the answer.
        timer.join()


def _tell(words: str) -> None:
    print(f"{words} ...", file=sys.stderr, flush=True)
