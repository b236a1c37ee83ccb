"""The error for a path of the command line that is not there, with what was probably meant."""

from __future__ import annotations

import difflib
from pathlib import Path

from pipo.errors import NotFound

SUFFIX = ".pipo"


def no_such(path: Path, what: str = "file") -> NotFound:
    """`no such file: x`, with the name in that folder that comes closest, or the folder itself."""
    return NotFound(f"no such {what}: {path}", hint=_way_on(path))


def _way_on(path: Path) -> str:
    folder = path.parent
    try:
        names = [p.name for p in folder.iterdir() if p.suffix == SUFFIX or p.is_dir()]
    except OSError:
        return f"cannot look into the folder {folder.absolute()}: check the spelling"
    whole = f"{path.name}{SUFFIX}"
    # A short name is far from the same one with its end.
    close = [whole] if whole in names else difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f"did you mean {folder / close[0]}?"
    return f"looked in {folder.absolute()}; a pipeline's file ends in {SUFFIX}"
