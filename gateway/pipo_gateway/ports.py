"""A taken port, explained: which one, who has it, and what to do."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec

from pipo.errors import Conflict
from pipo.home import Home, registry

ASK_TIMEOUT_S = 0.5


async def taken(port: int, listen: int, home: Home) -> Conflict:
    """The error for a port that somebody holds; `listen` is the HTTP port it follows from."""
    shown = f"port {port}" if port == listen else f"port {port} (gRPC, the one above {listen})"
    holder = await _holder(port, home)
    return Conflict(
        f"{shown} is taken by {holder}",
        hint=f"end it, or choose another port with --listen, such as --listen {listen + 10}",
    )


async def _holder(port: int, home: Home) -> str:
    """A gateway says itself whose it is; the registry knows our own services."""
    for http_port in (port, port - 1):
        where = await _gateway_home(http_port)
        if where is not None:
            return f"the Pipo gateway of {where}"
    for entry in registry.services(home):
        ports = {a.rpartition(":")[2] for a in (entry.address, entry.http_address)}
        if str(port) in ports:
            return f"the {entry.kind} {entry.id!r} of this home (pid {entry.pid} on {entry.host})"
    return "another program"


async def _gateway_home(port: int) -> str | None:
    try:
        async with (
            asyncio.timeout(ASK_TIMEOUT_S),
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/healthz") as answer,
        ):
            found = msgspec.json.decode(await answer.read())
    except (TimeoutError, OSError, aiohttp.ClientError, ValueError):
        return None
    if isinstance(found, dict) and found.get("service") == "gateway":
        return str(found.get("home"))
    return None
