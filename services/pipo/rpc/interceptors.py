"""What stands between the wire and a servicer: the token, and the mapping of errors.

A wrapped handler is made once per method and kept, so a call pays a dictionary
look-up. A generator is driven through `context.write`, exactly as grpc.aio does
it itself: a stream's messages pass nothing of ours.
"""

from __future__ import annotations

import hmac
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pipo.errors import BadRequest, Forbidden, PipoError
from pipo.rpc import errors, wire

# Probes of a container or an orchestrator carry no token.
OPEN_SERVICES = ("/grpc.health.v1.Health/",)

Handler = Any
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]
Behaviour = Callable[..., Any]


class _Garbled:
    """In the place of a request whose bytes are no message of its type."""


_GARBLED = _Garbled()


class ErrorMapping(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Turns a PipoError into its status and details, and anything else into `internal`."""

    def __init__(self, redact: errors.Redact | None = None) -> None:
        self._redact = redact
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        kept = self._wrapped.get(method)
        if kept is not None and kept[0] is handler:
            return kept[1]
        if handler is None:
            return None
        made = self._wrap(handler, method)
        self._wrapped[method] = (handler, made)
        return made

    def _wrap(self, handler: Handler, method: str) -> Handler:
        kind = _kind(handler)
        behaviour = getattr(handler, kind)
        run = self._returning if kind.endswith("unary") else self._streaming
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            run(behaviour, method),
            request_deserializer=_tolerant(
                handler.request_deserializer, method, streams=handler.request_streaming
            ),
            response_serializer=handler.response_serializer,
        )

    def _returning(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
            try:
                if request is _GARBLED:
                    raise _garbled(method)
                return await behaviour(request, context)
            except Exception as error:
                return await self._abort(context, error, method)

        return answer

    def _streaming(self, behaviour: Behaviour, method: str) -> Behaviour:
        generates = inspect.isasyncgenfunction(behaviour)

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> None:
            try:
                if request is _GARBLED:
                    raise _garbled(method)
                if generates:
                    await _write_all(behaviour(request, context), context)
                else:
                    await behaviour(request, context)
            except Exception as error:
                await self._abort(context, error, method)

        return answer

    async def _abort(
        self, context: grpc.aio.ServicerContext, error: Exception, method: str
    ) -> None:
        # grpc's own way out of `context.abort`, and of a call that its client ended.
        if isinstance(error, (grpc.aio.BaseError, grpc.aio.AbortError)) or context.done():
            raise error
        if not isinstance(error, PipoError):
            error = errors.bug(error, method)
        await errors.abort(context, error, self._redact)


def _tolerant(read: Behaviour | None, method: str, *, streams: bool) -> Behaviour | None:
    """The same deserializer, for which garbage is no bug.

    A stream's raises where the servicer reads; a lone request is read before anybody could catch.
    """
    if read is None:
        return None

    def tolerant(raw: bytes) -> Any:
        try:
            return read(raw)
        except DecodeError:
            if streams:
                raise _garbled(method) from None
            return _GARBLED

    return tolerant


def _garbled(method: str) -> BadRequest:
    return BadRequest(
        f"the bytes sent to {method} are no message of its type",
        hint="are both sides made from the same .proto files?",
    )


class InternalToken(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets only callers with the home's internal token through (design §8)."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()
        self._refusal = refusal(
            Forbidden(
                "this service answers only services of its own home",
                hint="send the home's internal token as `authorization: Bearer …`; people use the gateway",
            )
        )

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        for key, value in handler_call_details.invocation_metadata:
            if key == wire.TOKEN_KEY and hmac.compare_digest(value.encode(), self._wanted):
                return await continuation(handler_call_details)
        if handler_call_details.method.startswith(OPEN_SERVICES):
            return await continuation(handler_call_details)
        return self._refusal


def refusal(error: PipoError) -> Handler:
    """A handler that refuses any call, of whatever kind, before it reads a message."""

    async def refuse(requests: Any, context: grpc.aio.ServicerContext) -> None:
        raise error

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _write_all(messages: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
    async for message in messages:
        await context.write(message)


def _kind(handler: Handler) -> str:
    takes = "stream" if handler.request_streaming else "unary"
    gives = "stream" if handler.response_streaming else "unary"
    return f"{takes}_{gives}"
