"""Which definition runs: a pipeline's texts, kept in the journal as a numbered version.

What a version is made of is collected once, in `pipo.lang.texts`, and read back from the
journal as an `Edition`: the model, the texts of the source and of every file it names, and the
folder that its relative paths mean. Packets keep the version that accepted them, so editions
of older versions are made from the journal when such packets are pending.

Which one a start runs (edge 342). A file that has not changed since the last start runs the
newest version, whatever brought it: a rollback or an apply stands across restarts. A file that
has changed makes the next version, unless it equals the newest. One that only moved to another
folder makes a version too: its paths mean other files, and packets of the older version keep
writing where they began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pipo.connectors.contract import Manifest, Step
from pipo.errors import InvalidPipeline, InvalidState, NotFound
from pipo.home import Home, sent
from pipo.journal import versions
from pipo.journal.changes import VersionAdded
from pipo.lang import texts as files_of
from pipo.lang.check import Source, parse, restore
from pipo.lang.model import Pipeline
from pipo.lang.texts import Read, Texts
from pipo_runner.pipeline.definition.plan import Plan, make_plan
from pipo_runner.pipeline.definition.unbuilt import refuse_unbuilt
from pipo_runner.uploads import refuse_code

FIRST_START = "first start"
FILE_CHANGED = "file changed"
FILE_MOVED = "file moved"
# Nothing says whether it was meant to be the same pipeline: the reader of the history can tell.
FILE_OTHER = "another file: {file}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline file as it stands now, checked, with the texts of the files it names.

    `home` says which templates are trusted. `place` is what relative paths mean where that is
    not the file's own folder (decision 37).
    """

    texts: Texts
    file: Path
    pipeline: Pipeline
    home: Path | None = None
    place: Path | None = None

    @property
    def source(self) -> str:
        return self.texts.source

    @property
    def hash(self) -> str:
        """SHA-256 of its texts, hexadecimal."""
        return self.texts.hash

    @property
    def folder(self) -> Path:
        return self.place or self.file.parent

    def on_disk(self) -> Read:
        """Reads the files that it names, or those that were sent with it, as they stand."""
        if self.place is None:
            return files_of.on_disk(self.folder)
        return sent.files_of(self.file).get


@dataclass(frozen=True, slots=True)
class Edition:
    """One version, as this process runs it; its relative paths are those of `folder`."""

    version: int
    pipeline: Pipeline
    texts: Texts
    folder: Path


BuildStep = Callable[[str, str, Edition], Step]
"""Makes a step by its role and name, for the versions that share what it depends on."""


def read_definition(
    file: Path,
    name: str,
    manifests: Mapping[str, Manifest],
    home: Path | None = None,
    *,
    uploaded_code: bool = False,
) -> Definition:
    """The file of the pipeline `name`; `home` says which templates are trusted (P052).

    One that was sent as a text has its place elsewhere, and may run code only with
    `uploaded_code` (decisions 37, 38).
    Raises: NotFound; InvalidPipeline with the findings; InvalidState, if the file
        holds another pipeline; Forbidden, for code that may not run.
    """
    was_sent = home is not None and sent.was_sent(Home(home), file)
    texts = sent.files_of(file) if was_sent else None
    read = files_of.on_disk(file.parent) if texts is None else texts.get
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{file} is not there", hint=f"bring back the file of {name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{file} cannot be read: {error}") from error
    pipeline = parse(Source(source, str(file), texts), manifests, home)
    if pipeline.name != name:
        raise InvalidState(
            f"{file} holds the pipeline '{pipeline.name}', not '{name}'",
            hint=f"start it by its file, or set `name: {name}` in it",
        )
    refuse_unbuilt(pipeline)
    if was_sent and not uploaded_code:
        refuse_code(pipeline)
    collected = files_of.collect(source, pipeline, read)
    if collected.files:
        # What was read is what must pass: a file may have changed since it was looked at. Its
        # functions run here, so here is where their module may be imported (decision 38).
        parse(Source(source, str(file), collected.files), manifests, home, import_modules=True)
    place = sent.place_of(file) if was_sent else None
    return Definition(collected, file, pipeline, home, place)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a start runs, and the version that it adds for it, if any."""

    edition: Edition
    added: VersionAdded | None


def begin(
    definition: Definition,
    newest: versions.Version | None,
    last_start: str | None,
    manifests: Mapping[str, Manifest],
    at: int,
) -> Beginning:
    """What a start of this file runs; `last_start` is the hash of the file at the last one.

    Raises: InvalidState, if that is a version of the journal and no longer passes its check.
    """
    folder, number = definition.folder, 1 if newest is None else newest.version + 1
    fresh = Edition(number, definition.pipeline, definition.texts, folder)
    if newest is None:
        return Beginning(fresh, added(fresh, "human", "human", FIRST_START, at))
    moved = newest.folder is not None and newest.folder != str(folder)
    if definition.hash == newest.hash:
        if moved:
            return Beginning(fresh, added(fresh, "human", "human", FILE_MOVED, at))
        return Beginning(replace(fresh, version=newest.version), None)
    if definition.hash != last_start:
        reason = FILE_OTHER.format(file=definition.file) if moved else FILE_CHANGED
        return Beginning(fresh, added(fresh, "human", "human", reason, at))
    edition = Edition(newest.version, _passing(newest, definition, manifests), newest.texts, folder)
    if moved:
        edition = replace(edition, version=number)
        return Beginning(edition, added(edition, "human", "human", FILE_MOVED, at))
    return Beginning(edition, None)


def _passing(
    newest: versions.Version, definition: Definition, manifests: Mapping[str, Manifest]
) -> Pipeline:
    """The model of the newest version, which the file has not changed since (edge 353)."""
    try:
        source = Source(newest.source, str(definition.file), newest.files)
        pipeline = parse(source, manifests, definition.home)
        refuse_unbuilt(pipeline)
    except (InvalidPipeline, InvalidState) as error:
        raise InvalidState(
            f"v{newest.version}, the newest version of {definition.pipeline.name}, "
            f"no longer passes its check: {error.message}",
            hint=f"edit {definition.file}: a file that has changed is what a start runs",
        ) from error
    return pipeline


def added(edition: Edition, author: str, author_kind: str, reason: str, at: int) -> VersionAdded:
    """The change that journals a version."""
    return VersionAdded(
        version=edition.version,
        source=edition.texts.source,
        compiled=msgspec.json.encode(edition.pipeline),
        files=edition.texts.files,
        hash=edition.texts.hash,
        author=author,
        author_kind=author_kind,
        reason=reason,
        at=at,
        folder=str(edition.folder),
    )


class Plans:
    """Plans by version. The version in force is `current`; new packets use it."""

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        folder: Path,
        build_step: BuildStep,
        *,
        files: Path | None = None,
        admit: Callable[[Edition], Awaitable[None]] | None = None,
    ) -> None:
        """`folder` is that of today's file; `admit` hears of an older version before its plan."""
        self._manifests = manifests
        self._folder = folder
        self._files = files
        self._build_step = build_step
        self._admit = admit
        self._plans: dict[int, Plan] = {}
        self._editions: dict[int, Edition] = {}
        self._current: Plan | None = None

    def of(self, version: int) -> Plan:
        """The plan of a version that was added before."""
        return self._plans[version]

    def edition(self, version: int) -> Edition:
        """What a version that was added before is made of."""
        return self._editions[version]

    def current(self) -> Plan:
        """The plan of the version in force."""
        assert self._current is not None, "no version is in force"
        return self._current

    def outputs(self) -> set[str]:
        """The connectors that the plans write through."""
        return {plan.pipeline.output.to for plan in self._plans.values()}

    def prepare(self, edition: Edition) -> Plan:
        """A version's plan, made and kept; it is not in force."""
        plan = self._plans.get(edition.version)
        if plan is None:
            plan = self._plan(edition)
            self._plans[edition.version] = plan
            self._editions[edition.version] = edition
        return plan

    def put_in_force(self, edition: Edition) -> Plan:
        """New packets use this version from now on."""
        self._current = self.prepare(edition)
        return self._current

    def forget(self, version: int) -> None:
        """A version that was prepared did not come into being."""
        self._plans.pop(version, None)
        self._editions.pop(version, None)

    async def add_older(
        self,
        wanted: set[int],
        version_of: Callable[[int], Awaitable[versions.Version | None]],
    ) -> None:
        """Plans for packets that are pinned to other versions.

        Raises: InvalidState, if the journal lost one.
        """
        for version in sorted(wanted - self._plans.keys()):
            found = await version_of(version)
            if found is None:
                raise InvalidState(f"the journal has packets of v{version} and no such version")
            edition = self._older(found)
            if self._admit is not None:
                await self._admit(edition)
            self.prepare(edition)

    def _older(self, found: versions.Version) -> Edition:
        """A version as it was journaled: the files it names may have moved on.

        A folder that is gone has moved, and what is in it too: its paths mean today's.
        """
        folder = self._folder if found.folder is None else Path(found.folder)
        if not folder.is_dir():
            folder = self._folder
        file = str(folder / f"v{found.version}.pipo")
        pipeline = restore(Source(found.source, file, found.files))
        return Edition(found.version, pipeline, found.texts, folder)

    def _plan(self, edition: Edition) -> Plan:
        return make_plan(
            edition.pipeline,
            edition.version,
            manifests=self._manifests,
            folder=edition.folder,
            files=self._files,
            build_step=lambda role, name: self._build_step(role, name, edition),
            texts=edition.texts.files,
        )
