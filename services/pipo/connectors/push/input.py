"""Takes what is pushed: the doors for it belong to every pipeline, so nothing is opened here."""

from __future__ import annotations

from collections.abc import Sequence

from pipo.connectors.contract import Input, InputContext, InputSpec


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return PushInput()


class PushInput:
    """A pipeline takes pushes through any of its inputs; this one takes nothing else."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...
