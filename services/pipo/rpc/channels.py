"""Channels to the other processes of a home: token, limits and a deadline on every call."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc

from pipo.rpc import wire

CALL_TIMEOUT_S = 10.0


class Channel:
    """A channel whose calls carry the token; give it to any generated stub.

    Calls that answer once end after `timeout_s` unless the caller says otherwise;
    a stream ends when its owner ends it.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str, timeout_s: float) -> None:
        self._channel = channel
        self._metadata = wire.bearer(token)
        self._timeout_s = timeout_s

    def unary_unary(self, *words: Any, **keys: Any) -> Any:
        """For the generated stubs."""
        call = self._channel.unary_unary(*words, **keys)
        return partial(call, metadata=self._metadata, timeout=self._timeout_s)

    def unary_stream(self, *words: Any, **keys: Any) -> Any:
        """For the generated stubs."""
        return partial(self._channel.unary_stream(*words, **keys), metadata=self._metadata)

    def stream_unary(self, *words: Any, **keys: Any) -> Any:
        """For the generated stubs."""
        return partial(self._channel.stream_unary(*words, **keys), metadata=self._metadata)

    def stream_stream(self, *words: Any, **keys: Any) -> Any:
        """For the generated stubs."""
        return partial(self._channel.stream_stream(*words, **keys), metadata=self._metadata)

    async def close(self, grace_s: float | None = None) -> None:
        """Ends the channel; calls under way get `grace_s`, then they are cancelled."""
        await self._channel.close(grace_s)


def dial(
    address: str, token: str, *, timeout_s: float = CALL_TIMEOUT_S, quiet: bool = False
) -> Channel:
    """A channel to `host:port`. It connects at the first call; needs a running loop.

    A `quiet` one carries a stream that is idle for hours and on which nobody waits for an answer.
    """
    options = wire.QUIET_CHANNEL if quiet else wire.CHANNEL
    return Channel(grpc.aio.insecure_channel(address, options=options), token, timeout_s)
