"""Keys of hand-overs: one caller at a time, and the packet of whoever came first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from pipo.connectors.contract import Accepted
from pipo_runner.pipeline.intake.inbox import Inbox, Key
from tests.unit.runner.pipeline.rig import quiet

A, B = ("s", "a"), ("s", "b")


class Kept:
    """What the journal's inbox holds."""

    def __init__(self) -> None:
        self.found: dict[Key, tuple[str, str]] = {}
        self.error: Exception | None = None

    async def look_up(self, keys: Sequence[Key]) -> Mapping[Key, tuple[str, str]]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return {key: self.found[key] for key in keys if key in self.found}


async def test_what_came_before_is_a_duplicate_in_its_state_of_now() -> None:
    kept = Kept()
    kept.found[A] = ("01P", "delivered")
    assert await Inbox(kept.look_up).claim([A, B]) == {
        A: Accepted("01P", duplicate=True, state="delivered")
    }


async def test_a_key_belongs_to_one_caller_until_it_is_released() -> None:
    kept = Kept()
    inbox = Inbox(kept.look_up)
    assert await inbox.claim([A]) == {}
    second = asyncio.create_task(inbox.claim([B, A]))
    third = asyncio.create_task(inbox.claim([A]))
    await quiet()
    assert not second.done()
    assert not third.done()
    kept.found[A] = ("01P", "accepted")
    inbox.release([A])
    await quiet()
    # One of the two has it now; the other waits for that one.
    assert second.done() is not third.done()
    inbox.release([A, B])
    assert [A in found for found in await asyncio.gather(second, third)] == [True, True]


async def test_a_look_that_fails_or_is_cancelled_claims_nothing() -> None:
    kept = Kept()
    inbox = Inbox(kept.look_up)
    kept.error = OSError("disk")
    with pytest.raises(OSError, match="disk"):
        await inbox.claim([A])
    kept.error = None
    cut = asyncio.create_task(inbox.claim([A]))
    await asyncio.sleep(0)
    cut.cancel()
    await quiet()
    async with asyncio.timeout(1):
        assert await inbox.claim([A]) == {}
