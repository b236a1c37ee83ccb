"""The engine for commands that need one: it is brought up when none answers (design §2)."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

import click

from pipo.clock import SystemClock
from pipo.errors import BadRequest
from pipo_cli.progress import progress
from pipo_cli.settings import Settings


def refuse_without(settings: Settings, command: str, instead: str) -> None:
    """Raises: BadRequest, where `--no-engine` stands before a command that needs one (edge 403)."""
    if settings.no_engine:
        raise BadRequest(
            f"{command} needs the engine, and --no-engine does without one",
            hint=f"leave --no-engine out{instead}",
        )


def bring_up(
    settings: Settings, *, listen: int | None = None, ttl_s: float | None = None
) -> str | None:
    """Makes sure that a gateway answers; its address when this call started the engine, else None.

    Raises: PipoError, with the reason why the engine did not come up.
    """
    from pipo_cli import background

    if is_up(settings):
        return None
    config = settings.config
    config = replace(
        config,
        listen=config.listen if listen is None else listen,
        ttl_s=config.ttl_s if ttl_s is None else ttl_s,
    )
    with progress(settings, "starting the gateway, the runner and the checker"):
        return background.ensure(
            settings.home, config, answers=lambda: is_up(settings), clock=SystemClock()
        )


def for_command(settings: Settings) -> bool:
    """Brings the engine up for a command that needs it, and says so; whether none answered before."""
    if is_up(settings):
        return False
    url = bring_up(settings)
    if url is not None and not settings.json:
        from pipo_cli.render.engine import started_at

        click.echo(started_at(urlsplit(url).port or 0), err=True)
    return True


def is_up(settings: Settings) -> bool:
    """Whether a gateway answers, and its engine is neither on its way up nor ending."""
    from pipo.home import engine, leases
    from pipo_cli.client import find_gateway

    found = find_gateway(settings)
    if found is None or engine.stopping(settings.home):
        return False
    _, health = found
    embedded = leases.holder(engine.lease(settings.home)) is not None
    return not embedded or bool((health.get("services") or {}).get("runner"))


def require(settings: Settings, name: str) -> None:
    """Raises: NotFound, for a name that the home does not know; no engine comes up for that."""
    from pipo.home.directory import Directory

    directory = Directory(settings.home, SystemClock())
    if not directory.exists(name):
        raise directory.unknown(name)
