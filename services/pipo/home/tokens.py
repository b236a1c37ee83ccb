"""The two tokens a home makes for itself: for its services, and for its owner."""

from __future__ import annotations

import secrets
from pathlib import Path

from pipo.errors import Conflict
from pipo.home import atomic, permissions
from pipo.home.paths import Home

_BYTES = 32


def internal_token(home: Home) -> str:
    """What services show each other; made at the first asking, 0600.

    Raises: PipoError, if the file cannot be read or made.
    """
    return _once(home.internal_token_file)


def admin_token(home: Home) -> str:
    """What the command line shows the gateway; made at the first asking, 0600.

    Raises: PipoError, if the file cannot be read or made.
    """
    return _once(home.admin_token_file)


def _once(path: Path) -> str:
    found = _read(path)
    if found is None:
        atomic.create_once(path, secrets.token_urlsafe(_BYTES).encode() + b"\n", mode=0o600)
        found = _read(path)
    if not found:
        raise Conflict(f"{path} is empty", hint="remove it; a new token is made at the next start")
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        raise permissions.explain(path, error, doing="read") from error
