"""The pipeline that somebody probably meant by a name that the home does not know."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import PurePath

from pipo.home import desired
from pipo.home.paths import Home

SUFFIX = ".pipo"


def nearest(home: Home, given: str, names: Sequence[str]) -> str | None:
    """The one of `names` whose file is called so, that alone begins so, or that looks most like it.

    People know the file that they wrote: `signups.pipo` may hold `name: signups-to-sqlite`.
    """
    stem = given.removesuffix(SUFFIX)
    if not stem:
        return None
    by_file = [name for name in names if _stem(home, name) == stem]
    begin = [name for name in names if name.startswith(f"{stem}-")]
    for found in (by_file, begin):
        if len(found) == 1:
            return found[0]
    close = difflib.get_close_matches(given, names, n=1)
    return close[0] if close else None


def _stem(home: Home, name: str) -> str:
    """The name of the file that the pipeline was started from last, without its end."""
    wish = desired.read(home.pipeline(name))
    return PurePath(wish.file).name.removesuffix(SUFFIX) if wish else ""
