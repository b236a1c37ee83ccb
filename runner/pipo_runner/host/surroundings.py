"""What a host's parts are given: the outside, as few small functions and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pipo.clock import Clock
from pipo.home import Home, PipelineHome
from pipo.home.config import Config
from pipo.home.sent import Sent
from pipo_runner.host.child import Request
from pipo_runner.host.policy import Ending
from pipo_runner.host.spawning import Child

PIPELINE_ENTRY = "pipo_runner.pipeline.main:run"
EPITAPH_ENTRY = "pipo_runner.host.epitaph:run"


class Calls(Protocol):
    """What a host says to a pipeline process."""

    async def stop(self, address: str, pipeline: str, *, now: bool) -> bool:
        """Asks it to stop; whether it was stopping already. Raises: PipoError."""

    async def restart(self, address: str, pipeline: str) -> None:
        """Asks it to drain and end, to be brought up again. Raises: PipoError."""

    async def answers(self, address: str, pipeline: str) -> bool:
        """Whether this very pipeline answers there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A pipeline that may be started; `file` is absolute.

    `over_http` when one of its inputs takes HTTP requests, at `listen` of its own or nowhere but
    through a gateway. `sent` are its texts, where they came with the start: they are not in
    `file` yet.
    """

    name: str
    file: str
    over_http: bool = False
    listen: int | None = None
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`last_word` reads the journal's ending of a run that began at the given time.

    `resolve` says which pipeline a target means, or a text that was sent; `drain_s` how long the
    pipeline of a file may drain; both read and parse files, so they belong on a thread.
    """

    home: Home
    runner_id: str
    config: Config
    clock: Clock
    environ: Mapping[str, str]
    spawn: Callable[[Request], Awaitable[Child]]
    calls: Calls
    last_word: Callable[[PipelineHome, int], Awaitable[Ending | None]]
    resolve: Callable[[str | Sent], Target]
    drain_s: Callable[[str], float]
    outlived: bool = True
    """Whether a process can outlive this host: the end of a PID 1 is that of its container."""
    entry: str = PIPELINE_ENTRY
    epitaph_entry: str = EPITAPH_ENTRY

    def request(
        self,
        name: str,
        file: str,
        *,
        restarts: int,
        options: Mapping[str, Any],
        crash: str | None = None,
    ) -> Request:
        """The process of one pipeline."""
        return self._request(self.entry, name, file, restarts, options, crash)

    def epitaph(self, name: str, file: str, reason: str) -> Request:
        """A process that journals the stop which the pipeline could not."""
        return self._request(self.epitaph_entry, name, file, 0, {"reason": reason})

    def _request(
        self,
        entry: str,
        name: str,
        file: str,
        restarts: int,
        options: Mapping[str, Any],
        crash: str | None = None,
    ) -> Request:
        spec = {
            "home": str(self.home.root),
            "name": name,
            "file": file,
            "runner_id": self.runner_id,
            "bind": self.config.bind,
            "advertise": self.config.advertised,
            "restarts": restarts,
            "options": dict(options),
            "crash": crash,
        }
        log = str(self.home.pipeline(name).log)
        return Request(entry=entry, spec=spec, log=log, environ=dict(self.environ))
