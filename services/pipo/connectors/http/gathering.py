"""Requests that are read in one turn of the loop are taken in one commit (decision 002)."""

from __future__ import annotations

import asyncio

from pipo.connectors.contract import Arrival, HttpAnswer, HttpInput


class Gathering:
    """Gathers single packets until the loop has run what was ready, and waits for no timer."""

    def __init__(self, target: HttpInput) -> None:
        self._target = target
        self._waiting: list[tuple[Arrival, asyncio.Future[HttpAnswer]]] = []
        self._taking: set[asyncio.Task[None]] = set()

    async def answer(self, arrival: Arrival) -> HttpAnswer:
        """The answer to one packet.

        Cancelled: only the wait ends; the packet may have been accepted.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._take)
        answer: asyncio.Future[HttpAnswer] = loop.create_future()
        self._waiting.append((arrival, answer))
        return await answer

    def _take(self) -> None:
        group, self._waiting = self._waiting, []
        task = asyncio.create_task(self._answer(group), name=f"{len(group)} requests of a port")
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _answer(self, group: list[tuple[Arrival, asyncio.Future[HttpAnswer]]]) -> None:
        try:
            answers = await self._target.answer_arrivals([arrival for arrival, _ in group])
        except Exception as error:
            # A bug; each request meets it where it waits, and is answered 500 there.
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), given in zip(group, answers, strict=True):
            if not answer.done():
                answer.set_result(given)
