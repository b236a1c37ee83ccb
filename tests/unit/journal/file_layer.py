"""A file layer in Python under apsw: it fails a named call, or notes every write.

`Layer(on_call)` hands each call that reaches the disk to `on_call` before it is made;
what that raises, SQLite gets for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import apsw

_names = count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the disk: `write` at `offset`, `truncate` to `offset`, `sync` or `delete`."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""


OnCall = Callable[[Call], None]


class _File(apsw.VFSFile):
    def __init__(self, name: apsw.URIFilename | str | None, flags: list[int], on_call: OnCall):
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else (name or "")
        self._on_call = on_call
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._on_call(Call("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._on_call(Call("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._on_call(Call("sync", self._name))
        super().xSync(flags)


class Layer(apsw.VFS):
    """A VFS over the system's own; its `name` goes where a VFS is asked for."""

    def __init__(self, on_call: OnCall) -> None:
        self.name = f"layer{next(_names)}"
        self._on_call = on_call
        super().__init__(self.name, "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        return _File(name, flags, self._on_call)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._on_call(Call("delete", filename))
        super().xDelete(filename, syncdir)


@contextmanager
def layer(on_call: OnCall) -> Iterator[str]:
    """The name of a layer that lasts as long as the block."""
    made = Layer(on_call)
    try:
        yield made.name
    finally:
        made.unregister()


class FailAt:
    """Fails the nth call of one kind on files whose name ends so, once armed."""

    def __init__(self, kind: str, suffix: str, nth: int, error: type[Exception]) -> None:
        self._kind = kind
        self._suffix = suffix
        self._left = nth
        self._error = error
        self.armed = False
        self.fired = 0

    def __call__(self, call: Call) -> None:
        if not self.armed or call.kind != self._kind or not call.file.endswith(self._suffix):
            return
        self._left -= 1
        if self._left == 0:
            self.fired += 1
            raise self._error(f"{self._kind} of {call.file} failed")
