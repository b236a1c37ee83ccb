"""What a host finds in the home about a pipeline that it does not supervise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pipo.home import Home, PipelineHome, desired, leases, registry
from pipo.home.desired import Desired
from pipo.home.registry import Entry
from pipo_runner.host.policy import GOES_ON, Action, Ending, Found

_GIVEN_UP = frozenset({"crashed", "failed"})

# What another host supervises is left alone, so nothing more is read of it.
CLAIMED = Found(
    claimed_elsewhere=True,
    live=False,
    known=False,
    wanted=False,
    entry=False,
    over=False,
    given_up=False,
    settled=False,
    file_there=False,
    ours=False,
)

LastWord = Callable[[PipelineHome, int], Awaitable[Ending | None]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One pipeline as it stands: the facts that decide, and what they were read from."""

    name: str
    found: Found
    wish: Desired
    entry: Entry | None
    ending: Ending | None

    @property
    def end_state(self) -> str:
        """Its state, now that it neither runs nor is to run."""
        if self.ending is not None:
            return self.ending.kind
        return self.wish.state if self.wish.state in desired.ENDED else "stopped"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A pipeline that needs a host: what to do with it, and how long this host has seen it so."""

    seen: Finding
    action: Action
    orphaned_ms: int


def names(home: Home) -> list[str]:
    """Every pipeline that has a folder or a registry entry."""
    return sorted({*home.pipeline_names(), *registry.names(home)})


def loads(home: Home) -> dict[str, int]:
    """How many pipelines each living host supervises, by the claims that it holds."""
    alive = {(h.host, h.pid): h.id for h in registry.services(home, "runner") if h.address}
    counted = Counter(
        alive.get((holder.host, holder.pid))
        for name in home.pipeline_names()
        if (holder := leases.holder(home.pipeline(name).claim)) is not None
    )
    return {id: counted[id] for id in alive.values()}


async def look(home: Home, name: str, *, runner_id: str, last_word: LastWord) -> Finding:
    """The pipeline as it stands. Raises: PipoError, if a file of it cannot be read."""
    files = home.pipeline(name)
    if leases.holder(files.claim) is not None:
        return Finding(name, CLAIMED, Desired("running", ""), None, None)
    live = leases.holder(files.lease) is not None
    entry = registry.read(home, name)
    wish = _meant(desired.read(files), entry, live=live)
    runner = wish.runner if wish and wish.runner else entry.runner if entry else ""
    wanted = wish.desired == "running" if wish else entry is not None
    given_up = wish is not None and wish.state in _GIVEN_UP
    settled = wish is None or wish.state in {"", *desired.ENDED}
    ending = None
    if (wanted or not settled) and not (live or given_up):
        ending = await last_word(files, 0)
    file = wish.file if wish else entry.file if entry else ""
    found = Found(
        claimed_elsewhere=False,
        live=live,
        known=wish is not None or entry is not None,
        wanted=wanted,
        entry=entry is not None,
        over=ending is not None and ending.reason not in GOES_ON,
        given_up=given_up,
        settled=settled,
        file_there=_is_file(file),
        ours=runner == runner_id,
    )
    return Finding(name, found, wish or _rebuilt(entry, live=live), entry, ending)


def still(home: Home, seen: Finding) -> bool:
    """Whether it stands as it did: asked once the claim is ours, since others look too."""
    files = home.pipeline(seen.name)
    live = leases.holder(files.lease) is not None
    if live or seen.found.live:
        return live and seen.found.live
    entry = registry.read(home, seen.name)
    wish = desired.read(files) or _rebuilt(entry, live=False)
    return (entry, wish) == (seen.entry, seen.wish)


def _is_file(file: str) -> bool:
    return bool(file) and Path(file).is_file()


def _meant(wish: Desired | None, entry: Entry | None, *, live: bool) -> Desired | None:
    """What is desired, also where a host died between a start and the word of it.

    The word of an end is that of an earlier run, where a process is alive.
    """
    if wish is None or not live or wish.desired == "running" or wish.state not in desired.ENDED:
        return wish
    if entry is None:
        return replace(wish, desired="running")
    begun = _rebuilt(entry, live=True)
    return replace(wish, desired="running", file=begun.file, options=begun.options)


def _rebuilt(entry: Entry | None, *, live: bool) -> Desired:
    """What must have been desired, by the registry entry of the last run, or its being alive."""
    if entry is None:
        return Desired("running" if live else "stopped", "")
    said = ("ttl", "listen", "detached")
    options = {key: value for key in said if (value := getattr(entry, key))}
    return Desired("running", entry.file, options, runner=entry.runner)
