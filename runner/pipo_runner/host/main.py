"""`pipo-runner`: one runner host.

This file imports next to nothing: `main` forks the forkserver off before anything is
loaded that only the host needs, so that no pipeline process pays for it (aiohttp) or
may never hold it (a second SQLite library, design §5).
"""

from __future__ import annotations

import os
from functools import partial

import click

from pipo.service import PARENT_FD, run, service_options
from pipo_runner.host.forkserver import fork_off

GRPC_PORT = 8781
HTTP_PORT = 8782
# Beyond every engine.stop_timeout: `RunnerHost.stop` sets its own limit.
STOP_LIMIT_S = 24 * 3600.0


@click.command()
@service_options(http_port=HTTP_PORT)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=lambda: 0 if PARENT_FD in os.environ else GRPC_PORT,
    show_default=str(GRPC_PORT),
    help="The gRPC port; 0 lets the kernel choose.",
)
def main(home: str | None, id: str | None, http_port: int, port: int) -> None:
    """Supervises a process for each pipeline: starts, restarts and adopts them."""
    born = fork_off()
    from pipo_runner.host.service import start
    from pipo_runner.host.spawning import ForkServer

    begin = partial(start, ForkServer(born=born), port, http_port)
    run("runner", begin, home=home, id=id, stop_timeout_s=STOP_LIMIT_S)


if __name__ == "__main__":
    main()
