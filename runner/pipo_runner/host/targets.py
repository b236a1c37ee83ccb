"""What `start X` means (decision 16), or a text that was sent, and whether it may run at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipo.connectors.contract import Manifest
from pipo.errors import BadRequest, InvalidPipeline, InvalidState, NotFound, PipoError
from pipo.home import Home, permissions, registry, sent
from pipo.home.sent import Sent
from pipo.lang.check import Source, parse
from pipo.lang.model import Pipeline
from pipo_runner.host.known import known_file
from pipo_runner.host.options import Options
from pipo_runner.host.surroundings import Target
from pipo_runner.uploads import refuse_code

_DRAIN_DEFAULT_S = 120.0
_FILE_BYTES_LIMIT = 4 * 1024 * 1024


def resolve(
    target: str | Sent,
    *,
    home: Home,
    workspace: Path,
    manifests: Mapping[str, Manifest],
    uploaded_code: bool = False,
) -> Target:
    """The pipeline that `target` names, a file or a known pipeline; or the text that it is.

    `uploaded_code` says whether a text that was sent may run code (decision 38).
    Raises: NotFound, BadRequest, InvalidState; InvalidPipeline, with the findings; Forbidden,
        for a text with code that may not run.
    """
    if isinstance(target, Sent):
        return _sent(target, home, manifests, uploaded_code)
    if not target.strip():
        raise BadRequest("nothing to start", hint="name a pipeline or its file")
    path = (workspace / target).absolute()
    if "/" in target or target.endswith(".pipo") or path.is_file():
        return _checked(path, manifests, home)
    file = known_file(home, target)
    try:
        found = _checked(Path(file), manifests, home)
    except NotFound as error:
        raise NotFound(
            f"{target} was started from {file}, and that file is not there any more",
            hint="start it by its file, where that is now: pipo start FILE",
        ) from error
    if found.name != target:
        raise InvalidState(
            f"{file} names its pipeline {found.name!r} now, not {target!r}",
            hint=f"start it by its file: pipo start {file}",
        )
    return found


def refuse_unheard(found: Target, options: Options, home: Home) -> None:
    """Passes a pipeline whose requests reach it: through a gateway, or at a port of its own.

    Raises: InvalidState, where neither is there (edge 450).
    """
    if not found.over_http or found.listen or options.get("listen"):
        return
    if not registry.services(home, "gateway"):
        raise InvalidState(
            f"{found.name} takes HTTP requests, and no gateway runs that would bring them",
            hint="start a gateway, or give it a port of its own, such as --listen 8790",
        )


def drain_s(file: str, *, home: Home, manifests: Mapping[str, Manifest]) -> float:
    """How long the pipeline may drain, by its file; the default when that cannot be read."""
    try:
        lifetime = _read(Path(file), manifests, home).lifetime
    except PipoError:
        return _DRAIN_DEFAULT_S
    return lifetime.drain_timeout_ms / 1000 if lifetime else _DRAIN_DEFAULT_S


def _checked(path: Path, manifests: Mapping[str, Manifest], home: Home) -> Target:
    return _target(_read(path, manifests, home), path)


def _sent(
    given: Sent, home: Home, manifests: Mapping[str, Manifest], uploaded_code: bool
) -> Target:
    """A text as it came, judged before any of it is kept (decision 37)."""
    file = sent.file_of(home.pipeline(given.name), given)
    try:
        pipeline = parse(Source(given.source, str(file), given.files), manifests, home.root)
    except InvalidPipeline as error:
        # Its author knows no place in this home.
        message = error.message.replace(str(file), file.name)
        raise InvalidPipeline(message, findings=error.findings, hint=error.hint) from error
    if pipeline.name != given.name:
        raise BadRequest(
            f"the text names its pipeline {pipeline.name!r}, not {given.name!r}",
            hint="send it under the name that stands in it",
        )
    if not uploaded_code:
        refuse_code(pipeline)
    return _target(pipeline, file, given)


def _target(pipeline: Pipeline, file: Path, given: Sent | None = None) -> Target:
    over_http = [entry for entry in pipeline.inputs if entry.via == "http"]
    listen = next(filter(None, (entry.settings.get("listen") for entry in over_http)), None)
    return Target(pipeline.name, str(file), bool(over_http), listen, given)


def _read(path: Path, manifests: Mapping[str, Manifest], home: Home) -> Pipeline:
    if path.exists() and not path.is_file() and not path.is_dir():
        # A pipe without a writer would be read for ever.
        raise BadRequest(f"{path} is no plain file", hint="name a pipeline's file")
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_LIMIT + 1)
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {path}", hint="paths are relative to the workspace"
        ) from None
    except IsADirectoryError:
        raise BadRequest(f"{path} is a folder", hint="name one file in it") from None
    except OSError as error:
        raise permissions.explain(path, error, doing="read") from error
    if len(content) > _FILE_BYTES_LIMIT:
        raise BadRequest(f"{path} is larger than 4 MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path} is not UTF-8 text (byte {error.start + 1})") from error
    files = sent.files_of(path) if sent.was_sent(home, path) else None
    return parse(Source(text, str(path), files), manifests, home.root)
