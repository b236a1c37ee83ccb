"""A helper's life: it says that it is ready, then answers one frame after the other.

Its end. The kernel kills it, and every process that the author's code has started in its
group, when the last writer of the `life` pipe is gone: that needs no thread and no turn of an
interpreter that may be stuck in the author's loop. It also ends at end of file of its socket.

Its memory is limited by RLIMIT_DATA, which processes that it starts inherit, each for itself.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket

# By their own names: the author's code may make of `json` what it likes.
from json import dumps, loads
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, NoReturn

from pipo.functions.helper import faults, printing, wire
from pipo.functions.helper.loading import Loaded
from pipo.functions.helper.results import Unfit, as_json


def main(control: int, life: int, memory: int, limit: int, level: int) -> NoReturn:
    """Serves until the other side is gone.

    `control` and `life` are descriptors, `memory` and `limit` (of a result) bytes.
    """
    _end_with(life)
    _name_process()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory + _RESERVE_BYTES))
    printing.lead(level)
    for fd in (control, life):
        os.set_inheritable(fd, False)
    try:
        _Helper(socket.socket(fileno=control), memory, limit).serve()
    except OSError:
        # The code closed the socket, or the other side is gone.
        os._exit(wire.LOST_PIPE)
    except MemoryError:
        os._exit(wire.OUT_OF_MEMORY)


# What may be used beyond the limit to say that it is reached.
_RESERVE_BYTES: Final = 16 * 1024 * 1024


def _end_with(life: int) -> None:
    """SIGKILL for the whole group once nobody holds the other end of the pipe."""
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(life, select.POLLIN)
    if poll.poll(0):
        os._exit(0)


def _name_process() -> None:
    """What `ps -o comm` and `top` call it."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write("pipo:fn")
    except OSError:
        return


class _Helper:
    def __init__(self, peer: socket.socket, memory: int, limit: int) -> None:
        self._peer = peer
        self._memory = memory
        self._limit = limit
        self._loaded: dict[str, Loaded] = {}
        self._last: Loaded | None = None
        self._loop: Any = None
        # Whether nothing asynchronous can run here any more.
        self._spoiled = False
        # Given up when memory has run out: then there is none left to ask for more with.
        self._ballast: bytearray | None = bytearray(1024 * 1024)
        self._pid = os.getpid()

    def serve(self) -> NoReturn:
        self._peer.sendall(wire.frame(wire.READY))
        while True:
            kind, head, body = self._next()
            answer = self._load(body) if kind == wire.LOAD else self._answer(head, body)
            if os.getpid() != self._pid:
                # A fork that the code made and forgot: the answer is its parent's to give.
                os._exit(0)
            sound = printing.flush() and not self._spoiled
            self._peer.sendall(answer if sound else wire.spent(answer))
            del body, answer

    def _next(self) -> tuple[bytes, bytes, bytes]:
        kind, head, body = wire.HEADER.unpack(self._read(wire.HEADER.size))
        return kind, self._read(head), self._read(body)

    def _read(self, count: int) -> bytes:
        if not count:
            return b""
        first = self._peer.recv(count)
        if len(first) == count:
            return first
        raw = bytearray(count)
        raw[: len(first)] = first
        done = len(first)
        view = memoryview(raw)
        while done < count:
            got = self._peer.recv_into(view[done:])
            if not got:
                # The other side is gone: so is what this one has started.
                os.killpg(0, signal.SIGKILL)
            done += got
        return bytes(raw)

    # ── loading ──────────────────────────────────────────────────────────────

    def _load(self, body: bytes) -> bytes:
        made: Any = loads(body)
        loaded = Loaded(made["name"], made["folder"], made["modules"])
        printing.restore()
        try:
            loaded.load()
        except MemoryError as error:
            self._use_reserve()
            return _fault(wire.MEMORY, faults.of_import(error, loaded.files, loaded.main))
        except BaseException as error:
            return _fault(wire.RAISED, faults.of_import(error, loaded.files, loaded.main))
        self._loaded[made["name"]] = self._last = loaded
        return wire.frame(wire.ANSWER)

    def _use_reserve(self) -> None:
        self._ballast = None
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    # ── calling ──────────────────────────────────────────────────────────────

    def _answer(self, raw: bytes, body: bytes) -> bytes:
        head: Any = loads(raw)
        name = head["function"]
        loaded = self._loaded[head["name"]]
        try:
            function = loaded.function(name)
            if function is None:
                return _fault(wire.MISSING, f"{loaded.main} defines no function `{name}`")
            printing.restore()
            loaded.enter(is_last=loaded is self._last)
            self._last = loaded
            result = function(loads(body), head["meta"])
            if hasattr(result, "__await__"):
                result = self._awaited(result)
            if isinstance(result, (GeneratorType, AsyncGeneratorType)):
                return _fault(
                    wire.UNFIT,
                    f"fn.{name} is a generator, so nothing of it has run; return, do not yield",
                )
            return self._result(name, result) if head["wants_result"] else wire.frame(wire.ANSWER)
        except MemoryError as error:
            self._use_reserve()
            used = f"fn.{name} ran out of memory: its process may use {self._memory >> 20} MiB"
            return _fault(wire.MEMORY, f"{used}; {faults.told(error, loaded.files)}")
        except SystemExit as error:
            return _fault(wire.RAISED, f"fn.{name} called {faults.told(error, loaded.files)}")
        except BaseException as error:
            return _fault(wire.RAISED, f"fn.{name} raised {faults.told(error, loaded.files)}")

    def _result(self, name: str, result: Any) -> bytes:
        if result is None:
            return _fault(
                wire.UNFIT,
                f"fn.{name} returned nothing; return the new data, or pipo.NULL for null",
            )
        try:
            raw = as_json(result)
        except Unfit as error:
            return _fault(wire.UNFIT, f"fn.{name} returned what JSON cannot hold: {error}")
        if len(raw) > self._limit:
            return _fault(
                wire.TOO_LARGE,
                f"the result of fn.{name} has {len(raw)} bytes, more than engine.packet_limit"
                f" ({self._limit}); make it smaller, or raise engine.packet_limit",
            )
        return wire.frame(wire.ANSWER, b"", raw)

    def _awaited(self, awaitable: Any) -> Any:
        """Runs it on the one loop of this process; what it leaves running is cancelled."""
        import asyncio

        abandoned = False

        async def run() -> Any:
            try:
                return await awaitable
            finally:
                # One that the code abandoned ends whenever its memory is freed, perhaps during
                # another call: that one's tasks are none of its business.
                left = set() if abandoned else asyncio.all_tasks() - {asyncio.current_task()}
                for task in left:
                    task.cancel()
                if left:
                    await asyncio.wait(left)

        loop = self._sound_loop()
        task = loop.create_task(run())
        ended = False

        def end(task: Any) -> None:
            nonlocal ended
            ended = True
            loop.stop()

        task.add_done_callback(end)
        try:
            loop.run_forever()
        finally:
            if not ended:
                # The code stopped the loop, or broke out of it: what hangs in it would end the
                # next call's tasks, or the next call itself.
                self._loop, abandoned = None, True
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def _sound_loop(self) -> Any:
        """The loop of this process as it was made, whatever earlier calls have set on it.

        Raises: what keeps a new one from being made; then this process is of no more use.
        """
        import asyncio

        if self._loop is None or self._loop.is_closed():
            try:
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            except BaseException:
                self._spoiled = True
                raise
        self._loop.set_task_factory(None)
        self._loop.set_exception_handler(None)
        self._loop.set_debug(False)
        return self._loop


def _fault(kind: str, text: str) -> bytes:
    return wire.frame(wire.ANSWER, dumps({"fault": kind, "text": text}).encode())
