"""The settings of one installation: config.yaml, and environment variables over it.

`PIPO_<KEY>` (such as PIPO_STOP_TIMEOUT) overrides an engine setting, and
`PIPO_<KEY>_FILE` names a file that holds it; both are written as the value would be
in the file. Unknown keys and bad values are errors with line and column, all at
once; nothing falls back in silence (R42).
"""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipo.errors import BadRequest
from pipo.home import permissions
from pipo.home.config_values import READERS, Bad
from pipo.home.config_yaml import Malformed, Place, Value, parse
from pipo.home.paths import Home
from pipo.home.settings import Restart, TokenSetting

__all__ = ["Config", "Restart", "TokenSetting", "load"]

_SECTIONS = ("engine", "agents")
_WILDCARDS = frozenset({"0.0.0.0", "::"})


def _here() -> Path:
    """The working directory, also one that somebody deleted: most commands need none."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD", os.sep))


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting, typed; the defaults are those of doors.md."""

    listen: int = 8787
    detached: bool = False
    idle_s: float = 300.0
    ttl_s: float | None = None
    timezone: str | None = None
    env_allow: tuple[str, ...] = ()
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 15.0
    packet_limit_bytes: int = 16 * 1024 * 1024
    bind: str = "127.0.0.1"
    allow_uploaded_code: bool = False
    workspace: Path = field(default_factory=_here)
    restart: Restart = field(default_factory=Restart)
    agent_budget_per_day: float | None = None
    tokens: tuple[TokenSetting, ...] = ()
    mcp_tokens: tuple[TokenSetting, ...] = ()
    agents: Mapping[str, Any] = field(default_factory=dict)

    @property
    def advertised(self) -> str:
        """The host name or address under which others reach this one's servers."""
        if self.bind not in _WILDCARDS:
            return self.bind
        name = socket.gethostname()
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            return "127.0.0.1"
        return name


def load(home: Home, environ: Mapping[str, str] | None = None) -> Config:
    """The settings of `home`, under `environ` (this process's own when not given).

    Raises: BadRequest, with every mistake at its place; PipoError, if the file cannot be read.
    """
    reading = _Reading()
    reading.read_file(home.config_file)
    reading.read_environment(os.environ if environ is None else environ)
    if reading.faults:
        raise _refusal(reading.faults)
    return Config(**reading.settings)


def _refusal(faults: list[str]) -> BadRequest:
    several = f"{len(faults)} mistakes in the configuration:\n  " if len(faults) > 1 else ""
    return BadRequest(
        several + "\n  ".join(faults),
        hint="the settings are listed in docs/configuration.md",
    )


class _Reading:
    """Settings and faults gathered so far; what is read later wins."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.faults: list[str] = []

    def read_file(self, path: Path) -> None:
        try:
            text = path.read_bytes().decode()
        except FileNotFoundError:
            return
        except UnicodeDecodeError as error:
            self.faults.append(f"{path}:1:1  is not UTF-8 text (byte {error.start + 1})")
            return
        except OSError as error:
            raise permissions.explain(path, error, doing="read") from error
        try:
            root = parse(text)
        except Malformed as fault:
            self.faults.append(_placed(str(path), fault.place, str(fault)))
            return
        if root is not None and root.content is not None:
            self._read_sections(str(path), root)

    def _read_sections(self, source: str, root: Value) -> None:
        for key, place, value in self._pairs(source, root, "", _SECTIONS):
            if key == "engine":
                if value.content is not None:
                    self._read_engine(source, value)
            elif not isinstance(value.content, dict):
                self.faults.append(_placed(source, place, "agents must be a mapping"))
            else:
                self.settings["agents"] = value.plain()

    def _read_engine(self, source: str, engine: Value) -> None:
        known = [key for key in READERS if "." not in key] + ["mcp"]
        for key, _, value in self._pairs(source, engine, "engine.", known):
            if key == "mcp":
                for _, _, tokens in self._pairs(source, value, "engine.mcp.", ["tokens"]):
                    self._set(source, "mcp.tokens", tokens)
            else:
                self._set(source, key, value)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for key in READERS:
            name = "PIPO_" + key.upper().replace(".", "_")
            text = environ.get(name)
            if (path := environ.get(f"{name}_FILE")) is not None:
                name = f"{name}_FILE"
                try:
                    text = Path(path).read_text().strip()
                except (OSError, UnicodeDecodeError) as error:
                    self.faults.append(f"{name}: cannot read {path}: {error}")
                    continue
            if text is not None:
                self._read_variable(name, key, text)

    def _read_variable(self, name: str, key: str, text: str) -> None:
        if key == "env_allow" and not text.lstrip().startswith("["):
            text = f"[{text}]"
        try:
            value = parse(text) or Value(Place(1, 1), None, {})
        except Malformed as fault:
            self.faults.append(f"{name}: {fault}")
            return
        self._set(name, key, value)

    def _set(self, source: str, key: str, value: Value) -> None:
        field_name, read = READERS[key]
        try:
            self.settings[field_name] = read(value)
        except Bad as bad:
            for place, message in bad.faults:
                self.faults.append(_placed(source, place, f"engine.{key}: {message}"))

    def _pairs(
        self, source: str, value: Value, prefix: str, known: Iterable[str]
    ) -> Iterator[tuple[str, Place, Value]]:
        """The known keys of a mapping; the unknown ones become faults."""
        if not isinstance(value.content, dict):
            where = prefix.rstrip(".") or "the file"
            self.faults.append(_placed(source, value.place, f"{where} must be a mapping"))
            return
        for key, item in value.content.items():
            if key in known:
                yield key, value.keys[key], item
            else:
                message = f"unknown key {prefix}{key}{_near(key, known)}"
                self.faults.append(_placed(source, value.keys[key], message))


def _placed(source: str, place: Place, message: str) -> str:
    if source.startswith("PIPO_"):
        return f"{source}: {message}"
    return f"{source}:{place.line}:{place.col}  {message}"


def _near(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
