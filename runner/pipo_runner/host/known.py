"""Which file a pipeline of the home was started from."""

from __future__ import annotations

import difflib

from pipo.errors import InvalidState, NotFound
from pipo.home import Home, desired, registry


def known_file(home: Home, name: str) -> str:
    """The file that the pipeline `name` was started from last.

    Raises: NotFound, if the home does not know it.
    """
    files = home.pipeline(name) if name in home.pipeline_names() else None
    wish = desired.read(files) if files else None
    entry = registry.read(home, name) if files else None
    file = wish.file if wish else entry.file if entry else ""
    if file:
        return file
    if files:
        raise InvalidState(
            f"nothing says which file {name} was started from",
            hint="start it by its file: pipo start <file>",
        )
    near = difflib.get_close_matches(name, home.pipeline_names(), n=1)
    raise NotFound(
        f"no pipeline named {name!r}",
        hint=f"did you mean {near[0]}?" if near else "start it by its file: pipo start <file>",
    )
