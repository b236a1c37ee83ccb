"""A stop that no process journaled: somebody asked for it when none was there to hear it.

It counts as a clean end all the same (edge 324): with no word of it in the journal the next start
would go on with the ttl of a run that was stopped days ago, and be over at once.
"""

from __future__ import annotations

from pipo.errors import PipoError
from pipo.home.desired import Desired
from pipo.telemetry.logs import logger
from pipo_runner.host.epitaph import CRASHED
from pipo_runner.host.launching import journal_stop
from pipo_runner.host.policy import GOES_ON
from pipo_runner.host.surroundings import Surroundings

_log = logger("host.unjournaled")
# What a pipeline journals itself when somebody stops it.
STOP = "stop"


def may_lack_a_word(last: Desired) -> bool:
    """Whether somebody stopped it last, perhaps with a command that found no host."""
    return last.desired == "stopped" and last.state in ("stopped", "stopping")


async def journal_stopped(out: Surroundings, name: str, file: str) -> None:
    """The journal says that the pipeline, which has no process, was stopped.

    A run that crashed leaves its pause to the next (edge 306); one that was only suspended
    ends with this stop, and its pause with it (edge 305). One that ended in order is left alone.
    """
    ending = await out.last_word(out.home.pipeline(name), 0)
    if ending is not None and ending.reason not in GOES_ON:
        return
    try:
        await journal_stop(out, name, file, CRASHED if ending is None else STOP)
    except (PipoError, TimeoutError) as error:
        _log.warning(
            "the stop could not be journaled",
            action="pipeline.epitaph",
            pipeline=name,
            error=str(error),
        )
