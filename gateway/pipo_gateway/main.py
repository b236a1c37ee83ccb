"""The command `pipo-gateway`."""

from __future__ import annotations

from functools import partial

import click

from pipo.service import run


@click.command()
@click.option("--home", help="The Pipo home; PIPO_HOME or ~/.pipo by default.")
@click.option(
    "--listen",
    type=click.IntRange(0, 65534),
    help="The HTTP port; gRPC takes the one above. engine.listen (8787) by default.",
)
@click.option("--id", help="The name of this instance; the host's name by default.")
def main(home: str | None, listen: int | None, id: str | None) -> None:
    """Serves the doors of a Pipo home over HTTP and gRPC."""
    from pipo_gateway.gateway import start

    run("gateway", partial(start, listen), home=home, id=id)


if __name__ == "__main__":
    main()
