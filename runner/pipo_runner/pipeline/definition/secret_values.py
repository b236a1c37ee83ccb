"""The secrets of one pipeline process: each reference is resolved once, at the first version of
this run that declares it.

Packets of an older version use what that version declared, so its references are resolved too.
One that has no value refuses what needed it, the start or a replay: a packet is not sent on
without its secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipo.home import secrets


class SecretValues:
    """Values by reference; `hide` hears of each before anything can show it."""

    def __init__(self, environ: Mapping[str, str], hide: Callable[[str], object]) -> None:
        self._environ = environ
        self._hide = hide
        self._values: dict[str, str] = {}

    def of(self, declared: Mapping[str, str]) -> Mapping[str, str]:
        """The value of each name. Blocks while it reads files and runs `op`.

        Raises: BadRequest, naming every secret that has no value and why.
        """
        unknown = {name: ref for name, ref in declared.items() if ref not in self._values}
        for name, value in secrets.resolve(unknown, self._environ).items():
            self._hide(value)
            self._values[unknown[name]] = value
        return {name: self._values[ref] for name, ref in declared.items()}
