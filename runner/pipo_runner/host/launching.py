"""Bringing up one process: fork it, hear its report, or say why it did not serve."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from pipo import errors
from pipo.errors import Finding, InvalidPipeline, PipoError, Unavailable
from pipo_runner.host.child import Request
from pipo_runner.host.spawning import Child
from pipo_runner.host.surroundings import Surroundings

# A process that has reported its error ends right after.
_END_TIMEOUT_S = 5.0

# No restart mends these: somebody has to.
PERMANENT: tuple[type[PipoError], ...] = (
    InvalidPipeline,
    errors.BadRequest,
    errors.NotFound,
    errors.Forbidden,
    errors.InvalidState,
)

_BY_CODE: dict[str, type[PipoError]] = {
    kind.code: kind
    for kind in (
        errors.BadRequest,
        errors.NotFound,
        errors.InvalidState,
        errors.Unavailable,
        errors.Conflict,
        errors.Forbidden,
        errors.Internal,
    )
}


async def launch(surroundings: Surroundings, request: Request) -> Child:
    """A process that serves.

    Raises: PipoError, with the process's own reason or what could be seen of its end;
        then it is gone. Cancelled: the process may live on and serve.
    """
    name = request.spec["name"]
    timeout_s = surroundings.config.start_timeout_s
    child = await surroundings.spawn(request)
    try:
        async with asyncio.timeout(timeout_s):
            report = await child.report()
    except TimeoutError:
        child.signal(signal.SIGKILL)
        await child.exited()
        raise Unavailable(
            f"{name} did not serve within {timeout_s:g} s and was ended",
            hint=f"see {request.log}; engine.start_timeout sets the limit",
        ) from None
    if report is not None and report.get("ok"):
        return child
    await _end(child)
    if report is not None:
        raise _error(report["error"])
    raise Unavailable(
        f"{name} ended before it served ({await child.exited()})", hint=f"see {request.log}"
    )


async def journal_stop(surroundings: Surroundings, name: str, file: str, reason: str) -> None:
    """Journals `pipeline.stopped` in the place of a process that could not.

    Raises: PipoError, if it could not be journaled.
    """
    child = await surroundings.spawn(surroundings.epitaph(name, file, reason))
    async with asyncio.timeout(surroundings.config.start_timeout_s):
        report = await child.report()
        await child.exited()
    if report is None or "error" in report:
        raise _error((report or {}).get("error", {"message": "it ended without a word"}))


def told(error: PipoError) -> str:
    """An error and its way out as one text for a status line: a refused pipeline tells its first
    finding."""
    others = len(getattr(error, "findings", ())) - 1
    text = f"{error.message} (and {others} more)" if others > 0 else error.message
    return f"{text}; {error.hint}" if error.hint else text


async def _end(child: Child) -> None:
    """The child is gone: by itself after a report, else by force."""
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            await child.exited()
    except TimeoutError:
        child.signal(signal.SIGKILL)
        await child.exited()


def _error(found: dict[str, Any]) -> PipoError:
    code, message = found.get("code", "internal"), found.get("message", "")
    hint = found.get("hint", "")
    if code == InvalidPipeline.code:
        findings = [Finding(**finding) for finding in found.get("findings", ())]
        return InvalidPipeline(message, findings=findings, hint=hint)
    return _BY_CODE.get(code, errors.Internal)(message, hint=hint)
