"""Pipelines that came as text: where their texts are kept, and what their paths mean.

    pipelines/<name>/sent/<hash>/<name>.pipo      the text, as it was sent
    pipelines/<name>/sent/<hash>/files.json       the files that it names, by path, and its place

They are kept whole under a name made of what they say: a start that fails leaves those of the
last one alone. Files are looked up among what was sent and nowhere else; every other relative
path means the place, `<workspace>/<name>/` (decision 37). It is kept with the texts: an engine
that is brought up from another folder later moves nothing that a pipeline writes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipo.errors import NotFound
from pipo.home import atomic, permissions, records
from pipo.home.paths import Home, PipelineHome

FILES = "files.json"


@dataclass(frozen=True, slots=True)
class Sent:
    """A pipeline's text, and those of the files that it names, by path as it writes them."""

    name: str
    source: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Of all of it: 16 hexadecimal digits."""
        whole = json.dumps([self.source, sorted(self.files.items())])
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Beside:
    """What is kept beside a text: its place, and the files that came with it."""

    place: str
    files: dict[str, str]


def file_of(pipeline: PipelineHome, sent: Sent) -> Path:
    """Where the text is kept, or will be."""
    return pipeline.sent / sent.hash / f"{pipeline.name}.pipo"


def keep(pipeline: PipelineHome, sent: Sent, workspace: Path) -> None:
    """The texts stand in the home; the pipeline's place is in the workspace.

    Durable: on return they survive a power cut. Raises: PipoError, if they cannot be written.
    """
    file = file_of(pipeline, sent)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise permissions.explain(file.parent, error, doing="write") from error
    # A reader goes by the pipeline's own text, so that comes last.
    place = str(workspace.absolute() / pipeline.name)
    beside = json.dumps(asdict(_Beside(place, dict(sent.files))), indent=2)
    atomic.replace(file.with_name(FILES), beside.encode(), durable=True)
    atomic.replace(file, sent.source.encode("utf-8", "surrogatepass"), durable=True)


def keep_only(pipeline: PipelineHome, file: str) -> None:
    """Texts that were sent before are gone; all of them, where `file` is none that was sent."""
    for folder in _kept(pipeline):
        if folder != Path(file).parent:
            shutil.rmtree(folder, ignore_errors=True)
    if not _kept(pipeline):
        shutil.rmtree(pipeline.sent, ignore_errors=True)


def was_sent(home: Home, file: Path) -> bool:
    """Whether a pipeline's file is a text that was sent."""
    return home.pipelines in file.parents


def files_of(file: Path) -> Mapping[str, str]:
    """The files that were sent with a pipeline's text. Raises: NotFound, if they are damaged."""
    return _beside(file).files


def place_of(file: Path) -> Path:
    """The folder that the relative paths of a pipeline that was sent mean, made where it lacks.

    Raises: NotFound, as `files_of`; PipoError, if it cannot be made.
    """
    place = Path(_beside(file).place)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise permissions.explain(place, error, doing="write") from error
    return place


def _beside(file: Path) -> _Beside:
    listed = file.with_name(FILES)
    try:
        return records.decode(_Beside, records.load(listed))
    except (OSError, ValueError) as error:
        raise NotFound(
            f"{listed}, the files that were sent with {file.stem}, cannot be read: {error}",
            hint="send the pipeline again",
        ) from error


def _kept(pipeline: PipelineHome) -> list[Path]:
    try:
        return [one for one in pipeline.sent.iterdir() if one.is_dir()]
    except OSError:
        return []
