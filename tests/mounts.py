"""Small file systems for tests that fill one or make it read-only; they need root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, size: str = "256k") -> Iterator[Path]:
    """A file system of that size at `place`, gone at the end; skips where none can be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    try:
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def remount(place: Path, mode: str) -> None:
    """Makes a mounted file system read-only (`ro`) or writable again (`rw`)."""
    _mount("-o", f"remount,{mode}", str(place))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
