"""Who runs where, as the registry says it; an answer is at most half a second old."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from pipo.clock import Clock
from pipo.errors import NotFound
from pipo.home import Home, desired, leases, registry
from pipo.home.desired import Desired
from pipo.home.nearest import nearest
from pipo.home.paths import NAME
from pipo.home.registry import Entry

# Design §2, ports: readers look every 500 ms, and after a failed call.
REREAD_S = 0.5
NAME_SHOWN = 100

Signature = tuple[int, int, int]


@dataclass(slots=True)
class _Seen:
    looked_at: float
    signature: Signature
    entry: Entry | None


class Directory:
    """The pipelines of a home. Its look-ups read small files and never wait."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._run = str(home.run)
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._entries = Entries(home)

    def entry(self, name: str) -> Entry | None:
        """Where `name` runs, or None. A name that was never seen is looked up at once."""
        now = self._clock.monotonic()
        seen = self._seen.get(name)
        if seen is not None and now - seen.looked_at < REREAD_S:
            return seen.entry
        if seen is None and not NAME.fullmatch(name):
            return None
        return self._look(name, seen, now)

    def forget(self, name: str) -> None:
        """The next look-up of `name` reads the registry: a call to it has failed."""
        self._seen.pop(name, None)

    def doubt(self, name: str) -> None:
        """The next look-up of `name` asks whether its file has changed, however lately one did."""
        seen = self._seen.get(name)
        if seen is not None:
            seen.looked_at = -math.inf

    def exists(self, name: str) -> bool:
        """Whether the home knows `name`, running or not."""
        if self.entry(name) is not None:
            return True
        # os.path takes a name that is too long for a file system as one that is not there.
        return bool(NAME.fullmatch(name)) and os.path.isdir(self._home.pipelines / name)

    def names(self) -> list[str]:
        """Every pipeline that the home knows, sorted."""
        running = (entry.pipeline for entry in self._entries())
        return sorted({*running, *self._home.pipeline_names()})

    def desired(self, name: str) -> Desired | None:
        """What should be of `name`, as its host last wrote it."""
        return desired.read(self._home.pipeline(name))

    def alive(self, name: str) -> bool:
        """Whether a process holds the lease of `name` at this moment."""
        return leases.holder(self._home.pipeline(name).lease) is not None

    def claimed(self, name: str) -> bool:
        """Whether a runner host supervises `name` at this moment."""
        return leases.holder(self._home.pipeline(name).claim) is not None

    def unknown(self, name: str) -> NotFound:
        """The error for a name that nobody knows, with the one that was probably meant."""
        names = self.names()
        meant = nearest(self._home, name, names)
        if meant is not None:
            hint = f"did you mean {meant}?"
        elif names:
            hint = f"there are: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
        else:
            hint = "there is none yet; pipo start FILE starts one"
        return NotFound(f"no pipeline named {name[:NAME_SHOWN]!r}", hint=hint)

    def _look(self, name: str, seen: _Seen | None, now: float) -> Entry | None:
        signature = _signature(f"{self._run}/{name}.json")
        if signature is None:
            self._seen.pop(name, None)
            return None
        if seen is not None and seen.signature == signature:
            seen.looked_at = now
            return seen.entry
        entry = registry.read(self._home, name)
        self._seen[name] = _Seen(now, signature, entry)
        return entry


class Entries:
    """Every readable entry of a registry that is read again and again.

    A file that did not change since is not opened: with hundreds of pipelines that is most of
    the work. Not for two threads at a time.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._run = str(home.run)
        self._seen: dict[str, tuple[Signature, Entry]] = {}

    def __call__(self) -> list[Entry]:
        """The entries, by name."""
        found: dict[str, tuple[Signature, Entry]] = {}
        for name in registry.names(self._home):
            signature = _signature(f"{self._run}/{name}.json")
            seen = self._seen.get(name)
            if signature is None:
                continue
            if seen is not None and seen[0] == signature:
                found[name] = seen
            elif (entry := registry.read(self._home, name)) is not None:
                found[name] = (signature, entry)
        self._seen = found
        return [entry for _, entry in found.values()]


def _signature(path: str) -> Signature | None:
    """What changes when a file is replaced; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
