"""What becomes of an exception that a connector must not raise: one log line, and a text."""

from __future__ import annotations

from pipo.connectors.contract import ConnectorError
from pipo.telemetry.logs import logger

_log = logger("checker.mishaps")


class Mishaps:
    """Tells connectors' errors from their bugs; each kind of bug is logged once."""

    def __init__(self) -> None:
        self._told: set[tuple[type[Exception], str]] = set()

    def text(self, error: Exception, where: str) -> str:
        """What a packet's trail says of `error`; `where` is a fixed word such as `judge`."""
        if isinstance(error, ConnectorError):
            return error.message
        if (type(error), where) not in self._told:
            self._told.add((type(error), where))
            _log.error(
                "a check failed in a way it must not: this is a bug",
                action="check.bug",
                where=where,
                exc_info=error,
            )
        return f"{type(error).__name__}: {error}: this is a bug in Pipo"
