"""Which file a pipeline of the home was started from."""

from __future__ import annotations

from pipo.errors import InvalidState, NotFound
from pipo.home import Home, desired, registry
from pipo.home.nearest import nearest


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
    meant = nearest(home, name, home.pipeline_names())
    raise NotFound(
        f"no pipeline named {name!r}",
        hint=f"did you mean {meant}?" if meant else "start it by its file: pipo start <file>",
    )
