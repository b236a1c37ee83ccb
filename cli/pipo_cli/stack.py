"""The stack of a home as its supervisor sees it: claimed, ready, busy or not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pipo.clock import Clock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, desired, engine, leases, registry
from pipo.home.config import Config
from pipo.home.engine import INSTANCE
from pipo.home.leases import Lease
from pipo_cli import gateway as gateways
from pipo_cli import ports
from pipo_cli.embedded import KILL_GRACE_S, Supervisor, how
from pipo_cli.gateway import Gateway
from pipo_cli.threads import beside

POLL_S = 0.1


async def claim(home: Home, config: Config, clock: Clock) -> Lease:
    """The right to be the one embedded stack of the home, its ports being free.

    Services of a supervisor that was killed are on their way out: they are waited for.
    Raises: Conflict, naming who runs already or who holds the port.
    """
    path = engine.lease(home)
    lease = Lease.try_acquire(path, clock=clock)
    if lease is None:
        raise Conflict(
            f"an engine runs already for {home.root} ({leases.holder(path) or 'another process'})",
            hint="start pipelines in it with `pipo start FILE`, or end it: `pipo engine stop`;"
            " a second engine needs --home and --listen of its own",
        )
    try:
        await _leftovers_gone(home, config, clock)
        await beside(lambda: ports.refuse_taken(config.bind, config.listen, home), "look at ports")
    except BaseException:
        lease.release()
        raise
    return lease


def environment(
    inherited: Mapping[str, str], config: Config, env_allow: tuple[str, ...] = ()
) -> dict[str, str]:
    """What the services inherit: the settings that the command line decided, and all else."""
    allowed = dict.fromkeys((*config.env_allow, *env_allow))
    return {
        **inherited,
        "PIPO_LISTEN": str(config.listen),
        **({"PIPO_ENV_ALLOW": ",".join(allowed)} if allowed else {}),
    }


def gateway_of(home: Home, config: Config) -> Gateway:
    """Where the gateway of this stack answers this process."""
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    host = wildcards.get(config.bind, f"[{config.bind}]" if ":" in config.bind else config.bind)
    return Gateway(f"http://{host}:{config.listen}", gateways.token_for(home, None))


async def ready(home: Home, config: Config, supervisor: Supervisor, clock: Clock) -> Gateway:
    """The gateway, once it answers and sees a runner host and a checker.

    Raises: Unavailable, if a service ends meanwhile or the stack is not ready in time.
    """
    deadline = clock.monotonic() + config.start_timeout_s
    missing = "gateway"
    while clock.monotonic() < deadline:
        if supervisor.first_exit.done():
            kind, code = supervisor.first_exit.result()
            why = supervisor.last_words(kind)
            ended = f"the {kind} {how(code)} while the stack started"
            raise _not_up(home, kind, f"{ended}: {why}" if why else ended)
        # The token is made by the first gateway, so each look reads it anew.
        gateway = gateway_of(home, config)
        missing = await beside(lambda: _missing(gateway), "look at the gateway")  # noqa: B023
        if not missing:
            return gateway
        await asyncio.sleep(POLL_S)
    limit = f"within {config.start_timeout_s:g}s (engine.start_timeout)"
    raise _not_up(home, missing, f"the {missing} did not come up {limit}")


def quiet_s(gateway: Gateway) -> float | None:
    """How long nobody has used the gateway's API; None when it does not answer."""
    health = gateway.health()
    found = None if health is None else health.get("quiet_ms")
    return found / 1000 if isinstance(found, int | float) else None


def forget_crashed(home: Home) -> None:
    """Removes the registry entries of pipelines that crashed for good; they stay crashed (edge 448)."""
    for entry in registry.entries(home):
        pipeline = home.pipeline(entry.pipeline)
        wanted = desired.read(pipeline)
        crashed = wanted is not None and wanted.state == "crashed"
        if crashed and leases.holder(pipeline.lease) is None:
            registry.remove(home, entry.pipeline)


async def _leftovers_gone(home: Home, config: Config, clock: Clock) -> None:
    deadline = clock.monotonic() + config.stop_timeout_s + KILL_GRACE_S
    while any(s.id == INSTANCE and s.kind != engine.KIND for s in registry.services(home)):
        if clock.monotonic() >= deadline:
            return
        await asyncio.sleep(POLL_S)


def _missing(gateway: Gateway) -> str:
    """What is not up yet; empty when all is."""
    health = gateway.health()
    if health is None:
        return "gateway"
    alive = health.get("services") or {}
    return next((kind for kind in ("runner", "checker") if INSTANCE not in alive.get(kind, ())), "")


def _not_up(home: Home, kind: str, message: str) -> Unavailable:
    log = home.service_logs / f"{kind}-{INSTANCE}.log"
    return Unavailable(message, hint=f"its log says more: {log}")
