"""What each engine setting takes: one reader for each, from a placed value to a typed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipo.home.config_yaml import Place, Value
from pipo.home.paths import NAME
from pipo.home.quantities import duration_s, size_bytes
from pipo.home.settings import Restart, TokenSetting

_PACKET_LIMIT_MAX = 128 * 1024 * 1024
_REFERENCES = ("env:", "op://", "file:/")
_SCOPES = ("read", "operate", "edit")

Reader = Callable[[Value], Any]


class Bad(Exception):
    """One or more mistakes in a setting, at their places."""

    def __init__(self, *faults: tuple[Place, str]) -> None:
        super().__init__(faults)
        self.faults = faults


def _port(value: Value) -> int:
    return _whole(value, least=0, most=65535)


def _whole(value: Value, *, least: int, most: int | None = None) -> int:
    found = value.content
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise _no(value, f"a whole number from {least}")
    if most is not None and found > most:
        raise _no(value, f"a whole number from {least} to {most}")
    return found


def _flag(value: Value) -> bool:
    if not isinstance(value.content, bool):
        raise _no(value, "true or false")
    return value.content


def _text(value: Value) -> str:
    if not isinstance(value.content, str) or not value.content.strip():
        raise _no(value, "a text")
    return value.content


def _texts(value: Value) -> tuple[str, ...]:
    if not isinstance(value.content, tuple):
        raise _no(value, "a list of texts")
    return tuple(_text(item) for item in value.content)


def _duration(value: Value, *, least_s: float = 0.0) -> float:
    if not isinstance(value.content, str):
        raise _no(value, "a duration such as 30s or 5m")
    try:
        found = duration_s(value.content)
    except ValueError as error:
        raise Bad((value.place, str(error))) from error
    if found < least_s:
        raise Bad((value.place, f"{value.content} is too short; at least {least_s:g}s"))
    return found


def _at_least(least_s: float) -> Reader:
    return lambda value: _duration(value, least_s=least_s)


def _maybe_duration(value: Value) -> float | None:
    return None if value.content is None else _duration(value, least_s=0.001)


def _size(value: Value) -> int:
    found = value.content
    try:
        size = size_bytes(str(found)) if isinstance(found, str | int) else -1
    except ValueError as error:
        raise Bad((value.place, str(error))) from error
    if not 1 <= size <= _PACKET_LIMIT_MAX:
        raise _no(value, "a size up to 128MiB")
    return size


def _folder(value: Value) -> Path:
    return Path(_text(value)).expanduser().absolute()


def _timezone(value: Value) -> str:
    name = _text(value)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _no(value, "an IANA time zone such as Europe/Paris") from error
    return name


def _address(value: Value) -> str:
    found = _text(value)
    if any(c.isspace() or c == "/" for c in found):
        raise _no(value, "an address such as 127.0.0.1 or 0.0.0.0")
    return found


def _restart(value: Value) -> Restart:
    readers: Mapping[str, tuple[str, Reader]] = {
        "backoff": ("backoff_s", _at_least(0.001)),
        "max_backoff": ("max_backoff_s", _at_least(0.001)),
        "stable": ("stable_s", _at_least(0.001)),
        "max_restarts": ("max_restarts", lambda v: _whole(v, least=0)),
        "window": ("window_s", _at_least(0.001)),
    }
    return Restart(**_record(value, readers))


def _budget(value: Value) -> float:
    found = _record(value, {"per_day": ("per_day", _amount)}, required=("per_day",))
    return float(found["per_day"])


def _amount(value: Value) -> float:
    found = value.content
    if isinstance(found, bool) or not isinstance(found, int | float) or found <= 0:
        raise _no(value, "an amount of USD above 0")
    return float(found)


def _tokens(value: Value) -> tuple[TokenSetting, ...]:
    if not isinstance(value.content, tuple):
        raise _no(value, "a list of tokens")
    found = tuple(_token(item) for item in value.content)
    names = [token.name for token in found]
    for item, name in zip(value.content, names, strict=True):
        if names.count(name) > 1:
            raise Bad((item.place, f"two tokens are called {name!r}"))
    return found


def _token(value: Value) -> TokenSetting:
    readers: Mapping[str, tuple[str, Reader]] = {
        "name": ("name", _text),
        "token": ("token", _reference),
        "scope": ("scope", _scope),
        "pipelines": ("pipelines", _names),
    }
    return TokenSetting(**_record(value, readers, required=("name", "token", "scope")))


def _reference(value: Value) -> str:
    # The value may be a real token: it is never repeated.
    if not isinstance(value.content, str) or not value.content.startswith(_REFERENCES):
        raise Bad((value.place, "a token stands here by reference: env:NAME, file:/path or op://…"))
    return value.content


def _scope(value: Value) -> str:
    if value.content not in _SCOPES:
        raise _no(value, "read, operate or edit")
    return str(value.content)


def _names(value: Value) -> tuple[str, ...]:
    found = _texts(value)
    for item, name in zip(value.content, found, strict=True):
        if NAME.fullmatch(name) is None:
            raise _no(item, "a pipeline name")
    return found


def _record(
    value: Value, readers: Mapping[str, tuple[str, Reader]], *, required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The mapping read key by key, its mistakes gathered."""
    if not isinstance(value.content, dict):
        raise _no(value, f"a mapping of {', '.join(readers)}")
    found: dict[str, Any] = {}
    faults = [(value.place, f"{key} is missing") for key in required if key not in value.content]
    for key, item in value.content.items():
        if key not in readers:
            faults.append((value.keys[key], f"unknown key {key}; known are {', '.join(readers)}"))
            continue
        name, read = readers[key]
        try:
            found[name] = read(item)
        except Bad as bad:
            faults += [(place, f"{key}: {message}") for place, message in bad.faults]
    if faults:
        raise Bad(*faults)
    return found


def _no(value: Value, wanted: str) -> Bad:
    found = value.plain()
    shown = "nothing" if found is None else repr(found)
    return Bad((value.place, f"{shown[:80]} is not {wanted}"))


# engine key → the field of Config, and its reader.
READERS: Mapping[str, tuple[str, Reader]] = {
    "listen": ("listen", _port),
    "detached": ("detached", _flag),
    "idle": ("idle_s", _at_least(1.0)),
    "ttl": ("ttl_s", _maybe_duration),
    "timezone": ("timezone", _timezone),
    "env_allow": ("env_allow", _texts),
    "start_timeout": ("start_timeout_s", _at_least(0.001)),
    "stop_timeout": ("stop_timeout_s", _at_least(0.0)),
    "packet_limit": ("packet_limit_bytes", _size),
    "bind": ("bind", _address),
    "allow_uploaded_code": ("allow_uploaded_code", _flag),
    "workspace": ("workspace", _folder),
    "restart": ("restart", _restart),
    "agent_budget": ("agent_budget_per_day", _budget),
    "tokens": ("tokens", _tokens),
    "mcp.tokens": ("mcp_tokens", _tokens),
}
