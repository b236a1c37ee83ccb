"""A pipeline's file as it is sent: its text, and those of the files that it names."""

from __future__ import annotations

from pathlib import Path

from pipo.connectors.registry import manifests
from pipo.errors import BadRequest, InvalidPipeline
from pipo.home.sent import Sent
from pipo.lang.check import Source, parse
from pipo.lang.texts import collect, on_disk
from pipo_cli.failures import BrokenFile
from pipo_cli.missing import no_such


def sent(file: Path, *, unchanged: str) -> Sent:
    """The texts as they stand here; `unchanged` is what a refusal says was not done.

    Raises: BrokenFile, with the findings; NotFound, BadRequest.
    """
    try:
        source = Source.read(file)
    except FileNotFoundError:
        raise no_such(file) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"cannot read {file}: {error}", hint="name a pipeline's file") from error
    try:
        pipeline = parse(source, manifests())
    except InvalidPipeline as error:
        refusal = InvalidPipeline(
            f"{file} does not pass its check",
            findings=error.findings,
            hint=f"{unchanged}; mend it and try again",
        )
        raise BrokenFile(str(file), refusal) from error
    files = collect(source.text, pipeline, on_disk(file.parent)).files
    return Sent(pipeline.name, source.text, dict(files))
