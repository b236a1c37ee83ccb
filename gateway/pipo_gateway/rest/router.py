"""Finds the route of a request, lets the doors decide, and turns errors into answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from pipo.errors import BadRequest, NotFound, PipoError, Unavailable
from pipo.rpc.errors import bug
from pipo.rpc.to_json import dumps
from pipo_gateway.doors import Doors, NoToken, Principal
from pipo_gateway.expectation import go_on
from pipo_gateway.ingress.answer import LINE_END, Answer
from pipo_gateway.refusals import refusal, too_large
from pipo_gateway.rest.fields import Fields, body_fields, query_fields
from pipo_gateway.targets import valid

# What a body may have around the packet inside of it.
WRAPPING_BYTES = 64 * 1024
BODY_TIMEOUT_S = 30.0
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that passed the doors: who asks, the names in the path, the fields."""

    principal: Principal
    names: Mapping[str, str]
    fields: Mapping[str, Any]


Handler = Callable[[Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` has names in braces. Without a handler the operation is not built yet.

    A `raw` handler returns an Answer; any other a value for JSON.
    """

    method: str
    path: str
    operation: str
    scope: str = "read"
    fields: Fields = field(default_factory=dict)
    handler: Handler | None = None
    status: int = 200
    open: bool = False

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))


class Router:
    """All routes but `/in`."""

    def __init__(self, routes: Iterable[Route], doors: Doors, packet_bytes_limit: int) -> None:
        self._routes = tuple(routes)
        self._doors = doors
        self._bytes_limit = packet_bytes_limit + WRAPPING_BYTES
        self._packet_bytes_limit = packet_bytes_limit
        self._by_length: dict[int, list[Route]] = {}
        for route in self._routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    async def answer(self, request: web.BaseRequest, target: str) -> Answer:
        """The answer to any request; raises nothing that a client can cause."""
        try:
            return await self._answer(request, target)
        except NoToken as error:
            return refusal(error, headers=(("WWW-Authenticate", "Bearer"),))
        except Unavailable as error:
            return refusal(error, headers=(("Retry-After", "1"),))
        except PipoError as error:
            return refusal(error)
        except _Refused as refused:
            return refused.answer
        except ConnectionError:
            raise
        except Exception as error:
            return refusal(bug(error, f"{request.method} {valid(target).partition('?')[0]}"))

    async def _answer(self, request: web.BaseRequest, target: str) -> Answer:
        path, _, query = valid(target).partition("?")
        found = self._matching(tuple(path.rstrip("/").split("/")) if path != "/" else ("", ""))
        # A stranger learns nothing, not even which routes there are.
        principal = None if found and found[0][0].open else self._doors.admit(request.headers)
        if not found:
            return self._no_route(path)
        here = [(route, names) for route, names in found if route.method == request.method]
        if not here:
            return _no_method(request.method, [route for route, _ in found])
        route, names = here[0]
        if principal is not None:
            principal.require(route.scope, names.get("name"))
        if route.handler is None:
            return _not_built(route.operation)
        fields = await self._fields(request, route, query)
        made = await route.handler(Asked(principal or _NOBODY, names, fields))
        return made if isinstance(made, Answer) else Answer(route.status, dumps(made) + LINE_END)

    def _matching(self, segments: tuple[str, ...]) -> list[tuple[Route, dict[str, str]]]:
        found = []
        for route in self._by_length.get(len(segments), ()):
            names = _names(route.segments, segments)
            if names is not None:
                found.append((route, names))
        return found

    async def _fields(self, request: web.BaseRequest, route: Route, query: str) -> dict[str, Any]:
        if request.method == "GET":
            return query_fields(query, route.fields)
        if query:
            query_fields(query, {})
        if request.content_type != JSON:
            raise _Refused(_not_json(request.content_type))
        return body_fields(await self._body(request), route.fields)

    async def _body(self, request: web.BaseRequest) -> bytes:
        if (request.content_length or 0) > self._bytes_limit:
            raise _Refused(too_large(self._packet_bytes_limit))
        await go_on(request)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for part in request.content.iter_any():
                    size += len(part)
                    if size > self._bytes_limit:
                        raise _Refused(too_large(self._packet_bytes_limit))
                    parts.append(part)
        except TimeoutError:
            error = BadRequest(f"the body did not come within {BODY_TIMEOUT_S:.0f} s")
            raise _Refused(refusal(error, status=408)) from None
        except web.RequestPayloadError as error:
            raise BadRequest(f"the body cannot be read: {error}") from error
        return b"".join(parts)

    def _no_route(self, path: str) -> Answer:
        error = NotFound(f"there is no {path[:200]}", hint="`routes` lists what there is")
        built = [f"{r.method} {r.path}" for r in self._routes if r.handler is not None]
        return refusal(error, routes=[*built, "/in/{name}/…"])


class _Refused(Exception):
    """The request ends here with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def _names(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    """The names in a path that has the pattern's shape, decoded; None for another shape."""
    names: dict[str, str] = {}
    for want, found in zip(pattern, segments, strict=True):
        if want.startswith("{"):
            names[want[1:-1]] = unquote(found)
        elif want != found:
            return None
    return names


def _no_method(method: str, routes: Sequence[Route]) -> Answer:
    allowed = ", ".join(sorted({route.method for route in routes}))
    error = BadRequest(f"{method} is not for {routes[0].path}", hint=f"use {allowed}")
    return refusal(error, status=405, headers=(("Allow", allowed),))


def _not_json(content_type: str) -> Answer:
    error = BadRequest(
        f"the body is {content_type}, and JSON is wanted",
        hint="send `Content-Type: application/json`",
    )
    return refusal(error, status=415)


def _not_built(operation: str) -> Answer:
    error = Unavailable(
        f"{operation} is not built yet", hint="this version of Pipo knows the name and cannot do it"
    )
    return refusal(error, status=501)


_NOBODY = Principal("nobody", "read", frozenset())
