"""Blocking calls beside the event loop, on threads that never hold up the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def beside(call: Callable[[], R], name: str) -> R:
    """What `call` returns or raises, run on a daemon thread of its own.

    Cancelled: the wait ends; the thread runs on to its own timeout, and nobody hears of it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def tell(result: R | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: R | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done
