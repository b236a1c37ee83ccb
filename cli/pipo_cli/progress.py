"""A sign of life for long work: on a terminal only, and never in JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipo_cli.settings import Settings, plain


@contextmanager
def progress(settings: Settings, words: str) -> Iterator[None]:
    """Shows `words` on stderr while the block runs, and takes them away after it."""
    if settings.json or not sys.stderr.isatty():
        yield
        return
    if plain():
        print(f"{words} ...", file=sys.stderr, flush=True)
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield
