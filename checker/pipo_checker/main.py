"""`pipo-checker`: the command."""

from __future__ import annotations

from functools import partial

import click

from pipo.service import run, service_options
from pipo_checker.checker import start

HTTP_PORT = 8783
STOP_TIMEOUT_S = 4.5


@click.command()
@service_options(http_port=HTTP_PORT)
def main(home: str | None, id: str | None, http_port: int) -> None:
    """Looks at destinations, read only, and reports what it saw to the pipelines."""
    run("checker", partial(start, http_port), home=home, id=id, stop_timeout_s=STOP_TIMEOUT_S)


if __name__ == "__main__":
    main()
