"""Which input a request is for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipo import durations
from pipo.connectors.contract import HttpAnswer, HttpRequest, InputSpec
from pipo.connectors.http import auth
from pipo.connectors.http.answers import refusal
from pipo.connectors.http.auth import Auth
from pipo.errors import BadRequest

DEFAULT_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class Route:
    """One http input."""

    input: str
    method: str
    path: str
    format: str
    auth: Auth
    waits: bool
    timeout_s: float
    reject_status: int

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def route(spec: InputSpec) -> Route:
    """Raises: BadRequest, for settings that render to what no input can be."""
    settings = spec.settings
    path = settings.get("path", "/")
    if not isinstance(path, str) or not path.startswith("/"):
        raise BadRequest(
            f"the path of input '{spec.name}' renders to {path!r}", hint="a path starts with `/`"
        )
    return Route(
        input=spec.name,
        method=settings.get("method", "POST"),
        path=_bare(path),
        format=spec.format,
        auth=auth.read(settings, f"input '{spec.name}': with"),
        waits=settings.get("respond") == "delivered",
        timeout_s=durations.parse(settings.get("timeout", DEFAULT_TIMEOUT)) / 1000.0,
        reject_status=spec.respond_status,
    )


class Routes:
    """All routes of a pipeline."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        self._reject_status = {made.input: made.reject_status for made in routes}
        for made in routes:
            self._paths.setdefault(made.path, {})[made.method] = made

    def by_input(self) -> Mapping[str, str]:
        """Each input and its route, as people write it."""
        return {
            made.input: str(made) for methods in self._paths.values() for made in methods.values()
        }

    def reject_status(self, input_name: str) -> int:
        """The status for what the rules of an input reject."""
        return self._reject_status[input_name]

    def find(self, request: HttpRequest) -> Route | HttpAnswer:
        """The route, or 404, 405, 401: whatever needs no body."""
        methods = self._paths.get(_bare(request.path))
        if methods is None:
            return refusal(
                404, f"no input at {request.path}", f"this pipeline takes: {self._list()}"
            )
        found = methods.get(request.method)
        if found is None:
            allow = ", ".join(methods)
            return refusal(
                405,
                f"{request.path} does not take {request.method}",
                f"it takes: {allow}",
                Allow=allow,
            )
        token = found.auth.token
        if token is not None and not token.allows(request):
            return refusal(
                401,
                "the request does not show the right token",
                f"send it in the header {token.header}",
            )
        return found

    def _list(self) -> str:
        return ", ".join(self.by_input().values())


def _bare(path: str) -> str:
    """Trailing slashes do not matter (edge 27)."""
    return path.rstrip("/") or "/"
