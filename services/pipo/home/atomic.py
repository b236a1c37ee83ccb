"""Files that are whole or as they were: written beside their place, then renamed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pipo.home import permissions


def replace(path: Path, content: bytes, *, durable: bool = False, mode: int = 0o660) -> None:
    """`path` holds `content`; a reader sees the old file or the new one, never a part.

    Durable: with `durable`, file and folder are synced, and it survives a power cut.
    Raises: PipoError, if the file cannot be written.
    """
    spare = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(spare, content, durable=durable, mode=mode)
        os.rename(spare, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        spare.unlink(missing_ok=True)
        raise permissions.explain(path, error, doing="write") from error


def create_once(path: Path, content: bytes, *, mode: int) -> bool:
    """Whether this call made `path`; where it stands already, it stays as it is."""
    spare = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(spare, content, durable=True, mode=mode)
        os.link(spare, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise permissions.explain(path, error, doing="write") from error
    finally:
        spare.unlink(missing_ok=True)
    return True


def _write_new(path: Path, content: bytes, *, durable: bool, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
