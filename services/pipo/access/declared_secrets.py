"""The secrets of a pipeline that does not run, as far as this process can read their values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from pipo.errors import InvalidPipeline, PipoError
from pipo.home import secrets
from pipo.journal.versions import Version
from pipo.telemetry.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Known:
    """A redactor of what has a value here; `complete` if that is every declared secret."""

    redactor: Redactor
    complete: bool


def known(found: Iterable[Version]) -> Known:
    """What these versions declare. `op` is not run: it may ask its user for a password."""
    redactor, complete = Redactor(), True
    for ref in {ref for version in found for ref in _declared(version)}:
        if ref.startswith("op://"):
            complete = False
            continue
        try:
            redactor.add(secrets.resolve({"": ref}, os.environ)[""])
        except PipoError:
            complete = False
    return Known(redactor, complete)


def _declared(version: Version) -> Iterable[str]:
    """The references of one version. A text that passes no check any more tells none."""
    from pipo.lang.check import Source, restore

    try:
        return restore(Source(version.source, "version", version.files)).secrets.values()
    except InvalidPipeline:
        return ()
