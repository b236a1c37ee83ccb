"""`pipo-checker`: the command."""

from __future__ import annotations

import os
from functools import partial

import click

from pipo.clock import SystemClock
from pipo.home import home_from
from pipo.service import PARENT_FD, run, service_options
from pipo_checker import staying
from pipo_checker.checker import Checker, start

HTTP_PORT = 8783
STOP_TIMEOUT_S = 4.5


@click.command()
@service_options(http_port=HTTP_PORT)
@click.option("--stay", is_flag=True, hidden=True, help="Serve what is detached, then end.")
def main(home: str | None, id: str | None, http_port: int, stay: bool) -> None:
    """Looks at destinations, read only, and reports what it saw to the pipelines."""
    kind: type[Checker] = Checker
    if stay:
        kind, id, http_port = staying.Staying, staying.ID, 0
        staying.await_turn(home_from(home), SystemClock())
    elif PARENT_FD in os.environ:
        kind = staying.Embedded
    run(
        "checker",
        partial(start, kind, http_port),
        home=home,
        id=id,
        stop_timeout_s=STOP_TIMEOUT_S,
        log_at_home=stay,
    )


if __name__ == "__main__":
    main()
