"""What rendered settings ask to be run. Pure.

No shell reads anything: each argument is one argument, whatever stands in it. What no
program can be given (a NUL, half a surrogate pair) is refused here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipo.connectors.contract import Refused
from pipo.connectors.file.records import text
from pipo.durations import parse
from pipo.lang.printing import mixed_text

TIMEOUT = "5m"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Program:
    """One run: `command` is a name on PATH, or an absolute path; `files` are absolute paths.

    `env` stands beside the runner's own variables and is in no text about a program.
    """

    command: str
    args: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(repr=False)
    timeout_s: float
    success: frozenset[int]
    files: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The command as people see it."""
        return _cut(self.command)


def program(settings: Mapping[str, Any]) -> Program:
    """The run that rendered settings ask for.

    Raises: Refused, for what no program can be given.
    """
    return Program(
        command=_word("command", settings["command"]),
        args=tuple(_word(f"args[{n}]", arg) for n, arg in enumerate(settings.get("args", []))),
        cwd=str(settings["cwd"]),
        env=_environment(settings.get("env") or {}),
        stdin=_input(settings.get("stdin", "")),
        timeout_s=parse(settings.get("timeout", TIMEOUT)) / 1000.0,
        success=frozenset(settings.get("success", [0])),
        files=tuple(settings.get("outputs") or ()),
    )


def _word(where: str, value: Any) -> str:
    """A value as one argument: a text as it is, everything else as a template prints it."""
    word = mixed_text(value)
    if "\0" in word:
        raise Refused(f"`{where}` holds a NUL, which no program can be given: {_cut(word)!r}")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise Refused(f"`{where}` holds text that is no UTF-8: {ascii(word)[:60]}") from None
    return word


def _environment(given: Mapping[str, Any]) -> dict[str, str]:
    """The variables; what renders to nothing is not set."""
    made: dict[str, str] = {}
    for name, value in given.items():
        if not name or "=" in name or "\0" in name:
            raise Refused(f"{name!r} is no name of a variable")
        if value is not None:
            made[_word("env", name)] = _word(f"env.{name}", value)
    return made


def _input(value: Any) -> bytes:
    return b"" if value is None else text(value)


def _cut(word: str) -> str:
    return word if len(word) <= _SHOWN_CHARACTERS else f"…{word[1 - _SHOWN_CHARACTERS :]}"
