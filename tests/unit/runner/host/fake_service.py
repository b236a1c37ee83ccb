"""`pipo-runner` whose pipeline processes are fake ones."""

import sys

from pipo.service import ServiceShell, run
from pipo_runner.host.main import STOP_LIMIT_S, RunnerHost

FAKE = "tests.unit.runner.host.fake_pipeline"


async def start(shell: ServiceShell) -> RunnerHost:
    host = RunnerHost(shell, entry=f"{FAKE}:run", preload=[FAKE])
    await host.start(0, 0)
    return host


def main() -> None:
    run("runner", start, home=sys.argv[1], id="one", stop_timeout_s=STOP_LIMIT_S)


if __name__ == "__main__":
    main()
