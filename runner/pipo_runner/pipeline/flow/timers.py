"""Every wait and every background task of a pipeline, with one owner.

Waits are timers, never sleeping workers: a thousand units in back-off cost a
thousand timer handles. `cancel_waits` gives all of them back at a stop; what
they waited for is in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Timers:
    """Owner of timers and tasks. A task that fails unexpectedly is reported to `on_crash`."""

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._on_crash = on_crash
        self._handles: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: set[asyncio.Task[Any]] = set()
        self._reading_over = False

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Calls back in `delay_s` seconds, unless the waits are given back first."""

        def fire() -> None:
            self._handles.discard(handle)
            self._guarded(call, *args)

        handle = asyncio.get_running_loop().call_later(delay_s, fire)
        self._handles.add(handle)

    def soon(self, call: Callable[[], None]) -> None:
        """Calls back in the next turn of the loop."""
        asyncio.get_running_loop().call_soon(self._guarded, call)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self._on_crash(error)

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Runs a coroutine as a named task of this owner."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def read(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Runs the reader of a stream that its sender keeps open, until `end_reading`."""
        task = self.spawn(work, name=name)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        if self._reading_over:
            task.cancel()
        return task

    def end_reading(self) -> None:
        """Ends every reader: streams end once what they took is answered. Safe twice."""
        self._reading_over = True
        for task in self._readers:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)

    @property
    def waiting(self) -> int:
        """Timers that have not fired."""
        return len(self._handles)

    def cancel_waits(self) -> int:
        """Gives every wait back; how many there were."""
        count = len(self._handles)
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()
        return count

    async def close(self, grace_s: float) -> None:
        """Cancels all waits, and the tasks that are not done within `grace_s`."""
        self.cancel_waits()
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=grace_s)
