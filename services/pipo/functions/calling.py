"""One helper, as the pipeline process sees it: calls go in, one at a time, and answers come out.

Failure cases. A helper that does not answer in time, answers what is no frame of ours, closes its
socket or runs out of memory is ended with its whole process group, and costs the call that it
is in and no other. Its end is told by its pidfd: end of file on the socket may never come, since
what the author's code has started may hold the other end.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pipo.functions.code import Code
from pipo.functions.helper import wire
from pipo.functions.importing import IMPORT_TIMEOUT_S, START_TIMEOUT_S
from pipo.functions.launching import Launched, ended_how, launch
from pipo.functions.outline import MEMORY_BYTES
from pipo.functions.prints import Caller, PrintedLog, Prints
from pipo.payload import encode

CALL_TIMEOUT_S: Final = 30.0
# How long after its socket the end of a process is waited for, that says more.
_END_GRACE_S: Final = 1.0


class FunctionFailed(Exception):
    """A call failed; the text says why. With `hopeless` no retry can help."""

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call and one helper may take. A result has at most `result_bytes` of JSON."""

    result_bytes: int
    call_s: float = CALL_TIMEOUT_S
    import_s: float = IMPORT_TIMEOUT_S
    start_s: float = START_TIMEOUT_S
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function: `data` is JSON text, `meta` what goes with it."""

    code: Code
    function: str
    data: bytes
    meta: Mapping[str, Any]
    wants_result: bool
    caller: Caller


class Helper(asyncio.Protocol):
    """A process that runs functions. Use: `launch`, `start`, `run` for each call, `end`."""

    def __init__(self, limits: Limits, log: PrintedLog) -> None:
        self._limits = limits
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._loaded: set[str] = set()
        self._buffer = bytearray()
        self._wanted = 0
        self._answer: asyncio.Future[tuple[dict[str, Any], bytes]] | None = None
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._why = ""
        self._launched: Launched
        self._transport: asyncio.Transport
        self._prints: Prints

    def on_end(self, done: Callable[[], object]) -> None:
        """Calls back when its process is gone."""
        self._ended.add_done_callback(lambda _: done())

    @property
    def alive(self) -> bool:
        """Whether it can take another call."""
        return not self._ended.done() and not self._why

    # ── life ─────────────────────────────────────────────────────────────────

    def launch(self, environ: Mapping[str, str]) -> None:
        """Its process begins. Raises: NotStarted."""
        limits = self._limits
        self._launched = launch(
            environ, result_limit=limits.result_bytes, memory_bytes=limits.memory_bytes
        )
        os.set_blocking(self._launched.log, False)
        self._launched.control.setblocking(False)
        self._prints = Prints(self._launched.log, self._log)
        self._pidfd = os.pidfd_open(self._launched.process.pid)
        self._loop.add_reader(self._pidfd, self._exited)
        self._loop.add_reader(self._launched.log, self._printed)

    async def start(self) -> None:
        """Ready for calls when it returns. Raises: FunctionFailed, if it does not come up."""
        try:
            self._answer = self._loop.create_future()
            transport, _ = await self._loop.create_unix_connection(
                lambda: self, sock=self._launched.control
            )
            self._transport = transport
            await self._answered(self._answer, self._limits.start_s, "did not start")
        except BaseException:
            self.kill("could not be started")
            raise

    def kill(self, why: str) -> None:
        """Ends it now, with all that its code has started. Safe twice."""
        if not self._ended.done():
            self._why = self._why or why
            self._launched.kill()

    async def end(self) -> None:
        """Ends it, and returns when it is gone."""
        self.kill("was ended")
        await asyncio.shield(self._ended)

    def _exited(self) -> None:
        """Its process is over: so are those of its group, and the call that it was in."""
        # Not reaped yet, so the group is still its own.
        self._launched.kill()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        how = ended_how(self._launched.process.wait())
        self._prints.drain()
        self._prints.close()
        self._loop.remove_reader(self._launched.log)
        if hasattr(self, "_transport"):
            self._transport.abort()
        self._launched.close()
        self._ended.set_result(how)
        self._fail(self._why or f"ended its process ({how})")

    def _printed(self) -> None:
        self._prints.read()
        if self._prints.over:
            # It would be readable for ever.
            self._loop.remove_reader(self._launched.log)

    # ── calls ────────────────────────────────────────────────────────────────

    async def run(self, call: Call) -> bytes:
        """The result's JSON text; empty for a call that wants none.

        Raises: FunctionFailed. Cancelled: the helper is ended.
        """
        name = f"fn.{call.function}"
        self._prints.begin(call.caller)
        try:
            if call.code.name not in self._loaded:
                await self._load(call.code, name)
            head = {
                "name": call.code.name,
                "function": call.function,
                "meta": call.meta,
                "wants_result": call.wants_result,
            }
            sent = wire.frame(wire.CALL, encode(head), call.data)
            answer, body = await self._asked(sent, self._limits.call_s, "did not return")
        except FunctionFailed as failed:
            raise FunctionFailed(f"{name} {failed}", hopeless=failed.hopeless) from None
        except asyncio.CancelledError:
            self.kill("was given up")
            raise
        finally:
            self._prints.end()
        if answer:
            self._raise(answer)
        return body

    async def _load(self, code: Code, name: str) -> None:
        sent = wire.frame(wire.LOAD, b"", code.as_json())
        answer, _ = await self._asked(sent, self._limits.import_s, "did not import its module")
        if answer:
            answer["text"] = f"has a module that does not import: {answer['text']}"
            self._raise(answer)
        self._loaded.add(code.name)

    def _raise(self, answer: Mapping[str, Any]) -> None:
        fault = answer.get("fault")
        if fault == wire.MEMORY:
            # What filled it may still be there.
            self.kill("ran out of memory")
        text = str(answer.get("text"))
        raise FunctionFailed(text, hopeless=fault in (wire.TOO_LARGE, wire.MISSING))

    async def _asked(
        self, sent: bytes, timeout_s: float, late: str
    ) -> tuple[dict[str, Any], bytes]:
        if not self.alive:
            raise FunctionFailed(self._why or "lost its process before it began")
        answer = self._answer = self._loop.create_future()
        self._transport.write(sent)
        return await self._answered(answer, timeout_s, late)

    async def _answered(
        self, answer: asyncio.Future[tuple[dict[str, Any], bytes]], timeout_s: float, late: str
    ) -> tuple[dict[str, Any], bytes]:
        timer = self._loop.call_later(timeout_s, self._overran, timeout_s, late)
        try:
            return await answer
        finally:
            timer.cancel()
            self._answer = None

    def _overran(self, timeout_s: float, late: str) -> None:
        why = f"{late} within {timeout_s:g} s; its process was ended"
        self.kill(why)
        self._fail(why)

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(FunctionFailed(why))

    # ── the socket ───────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if self._why:
            # It is being ended: what it still says is too late.
            return
        self._buffer += data
        if len(self._buffer) < max(self._wanted, wire.HEADER.size):
            return
        kind, head, body = wire.HEADER.unpack_from(self._buffer)
        whole = wire.HEADER.size + head + body
        waited_for = self._answer is not None and not self._answer.done()
        if (
            not waited_for
            or kind not in (wire.READY, wire.ANSWER, wire.SPENT)
            or head > wire.HEAD_BYTES_LIMIT
            or body > self._limits.result_bytes
            or len(self._buffer) > whole
        ):
            self._spoiled()
            return
        self._wanted = whole
        if len(self._buffer) < whole:
            return
        raw, self._buffer, self._wanted = bytes(self._buffer), bytearray(), 0
        body_at = wire.HEADER.size + head
        try:
            found = json.loads(raw[wire.HEADER.size : body_at]) if head else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._spoiled()
            return
        assert self._answer is not None
        self._answer.set_result((found, raw[body_at:]))
        if kind == wire.SPENT:
            self.kill("was spent")

    def _spoiled(self) -> None:
        """What came is no frame of ours, or answers nothing."""
        self._buffer.clear()
        self.kill("wrote into the pipe to Pipo")
        self._fail(self._why)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._loop.call_later(_END_GRACE_S, self.kill, "closed the pipe to Pipo")


async def ended_all(helpers: list[Helper], timeout_s: float) -> None:
    """Ends helpers, waiting at most so long for the kernel to be done."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(helper.end() for helper in helpers))
