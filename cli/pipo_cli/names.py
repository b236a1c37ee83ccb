"""How a person calls this program, from where they are; and who they are."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from pipo.home import Home


def own_name(home: Home) -> str:
    """`pipo`, or a path to it where it is not on the PATH; with `--home` unless it is the default."""
    invoked = Path(sys.argv[0])
    found = shutil.which("pipo")
    if invoked.name != "pipo":
        name = f"{Path(sys.executable).name} -m pipo_cli"
    elif found is not None and Path(found).resolve() == invoked.resolve():
        name = "pipo"
    else:
        name = _short(invoked)
    default = Path("~/.pipo").expanduser()
    return name if home.root == default else f"{name} --home {_short(home.root)}"


def os_user() -> str:
    """Who runs this program, for what keeps a name; `uid 1000` where the user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that its user list does not know.
        return f"uid {os.getuid()}"


def _short(path: Path) -> str:
    """The path from here, where it lies below."""
    with suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)
