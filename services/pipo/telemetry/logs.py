"""Log lines: one for each thing worth telling, readable by people and by grep.

    2026-10-10T21:13:48.263Z info  pipeline started  action=pipeline.start version=3

Prose first, then a stable `action` word, then keys in the order given. Times are
UTC. A line break inside a text is written as \\n, so no data can forge a line; a
traceback follows its line, indented. Masking of secrets is the last thing that
happens to a line (`mask`). structlog makes the events, the standard library's
handlers write them, so lines of other libraries look and are masked the same.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipo.clock import Clock, SystemClock, iso
from pipo.telemetry.files import Discreet, RotatingFile
from pipo.telemetry.lean import without
from pipo.telemetry.redaction import Redactor

with without("rich", "better_exceptions", "colorama"):
    import structlog
    from structlog.typing import EventDict, WrappedLogger

_LEVELS = {"warning": "warn", "critical": "fatal"}
_OWN = frozenset({"event", "level", "action", "exception", "_record", "_from_structlog"})
_BARE = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


class _Masking:
    redactor = Redactor()


def configure(
    service: str,
    *,
    file: Path | None = None,
    pipeline: str | None = None,
    level: str | None = None,
    stdio: bool = False,
    clock: Clock | None = None,
) -> None:
    """This process logs as `service` from now on: to standard error, and into `file` too.

    With `stdio`, standard output and error are led into the file instead, for a
    process that nobody looks at; all of it turns over together. `level` defaults
    to PIPO_LOG_LEVEL, else info. Later calls replace the earlier ones.
    Raises: OSError, if the file cannot be opened.
    """
    fixed: dict[str, Any] = {"service": service} | ({"pipeline": pipeline} if pipeline else {})
    formatter = _formatter(clock or SystemClock(), fixed)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in _handlers(file, stdio):
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(_level(level))


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; `name` is the module's, dotted, and shows in no line."""
    return structlog.stdlib.get_logger(f"pipo.{name}")


def mask(redactor: Redactor) -> None:
    """Every later line of this process passes through `redactor`."""
    _Masking.redactor = redactor


def _formatter(clock: Clock, fixed: dict[str, Any]) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
        processors=[structlog.processors.format_exc_info, _renderer(clock, fixed)],
    )


def _handlers(file: Path | None, stdio: bool) -> list[logging.Handler]:
    if file is None:
        return [Discreet(sys.stderr)]
    if stdio:
        return [RotatingFile.with_stdio(file)]
    return [RotatingFile(file, stdio=False), Discreet(sys.stderr)]


def _level(level: str | None) -> int:
    wanted = (level or os.environ.get("PIPO_LOG_LEVEL") or "info").upper()
    return logging.getLevelNamesMapping().get(wanted, logging.INFO)


def _renderer(
    clock: Clock, fixed: dict[str, Any]
) -> Callable[[WrappedLogger, str, EventDict], str]:
    def render(_: WrappedLogger, __: str, event: EventDict) -> str:
        level = _LEVELS.get(event["level"], event["level"])
        words = [f"{iso(clock.now_ms())} {level:<5} {_escaped(str(event['event']))} "]
        keys = {"action": event["action"]} if "action" in event else {}
        keys |= {key: value for key, value in event.items() if key not in _OWN}
        words += [f"{key}={_shown(value)}" for key, value in (keys | fixed).items()]
        line = " ".join(words).rstrip()
        if trace := event.get("exception"):
            line += "\n" + "\n".join(f"  {part}" for part in str(trace).splitlines())
        return _Masking.redactor.text(line)

    return render


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return value if _BARE.fullmatch(value) else _quoted(value)
        case dict() | list() | tuple():
            return _quoted_json(value)
        case _:
            return _shown(str(value))


def _quoted(text: str) -> str:
    return _escaped(json.dumps(text, ensure_ascii=False))


def _quoted_json(value: Any) -> str:
    return _escaped(json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":")))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=False,
)
# What a process says that never calls `configure`: warnings, on standard error.
if logging.lastResort is not None:
    logging.lastResort.setFormatter(_formatter(SystemClock(), {}))
