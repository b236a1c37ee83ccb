"""`pipo-runner` whose pipeline processes are fake ones."""

import sys
from functools import partial

from pipo.service import ServiceShell, run
from pipo_runner.host.forkserver import fork_off
from pipo_runner.host.main import STOP_LIMIT_S
from pipo_runner.host.service import RunnerHost
from pipo_runner.host.spawning import ForkServer

FAKE = "tests.unit.runner.host.fake_pipeline"


async def start(forkserver: ForkServer, shell: ServiceShell) -> RunnerHost:
    host = RunnerHost(shell, forkserver, entry=f"{FAKE}:run")
    await host.start(0, 0)
    return host


def main() -> None:
    forkserver = ForkServer([FAKE], born=fork_off([FAKE]))
    begin = partial(start, forkserver)
    run("runner", begin, home=sys.argv[1], id="one", stop_timeout_s=STOP_LIMIT_S)


if __name__ == "__main__":
    main()
