"""Which definition runs: the file's text, kept in the journal as a numbered version.

A file that is unchanged since the newest version runs that one; a changed file
makes the next (edge 342). Packets keep the version that accepted them, so plans
of older versions are made from the journal when such packets are pending.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipo.connectors.contract import Manifest, Step
from pipo.errors import InvalidState, NotFound
from pipo.journal.changes import VersionAdded
from pipo.lang.check import Source, parse, restore
from pipo.lang.model import Pipeline
from pipo_runner.pipeline.plan import Plan, make_plan
from pipo_runner.pipeline.unbuilt import refuse_unbuilt


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline file as it stands now, checked."""

    source: str
    file: Path
    pipeline: Pipeline

    @property
    def hash(self) -> str:
        """SHA-256 of the text, hexadecimal."""
        return hashlib.sha256(self.source.encode()).hexdigest()


def read_definition(file: Path, name: str, manifests: Mapping[str, Manifest]) -> Definition:
    """The file of the pipeline `name`.

    Raises: NotFound; InvalidPipeline with the findings; InvalidState, if the file
        holds another pipeline.
    """
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{file} is not there", hint=f"bring back the file of {name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{file} cannot be read: {error}") from error
    pipeline = parse(Source(text=source, file=str(file)), manifests)
    if pipeline.name != name:
        raise InvalidState(
            f"{file} holds the pipeline '{pipeline.name}', not '{name}'",
            hint=f"start it by its file, or set `name: {name}` in it",
        )
    refuse_unbuilt(pipeline)
    return Definition(source, file, pipeline)


def next_version(
    definition: Definition, newest: tuple[int, str] | None, at: int
) -> VersionAdded | None:
    """The version that a start adds; None when the newest one (number, hash) is the same."""
    if newest is not None and newest[1] == definition.hash:
        return None
    return VersionAdded(
        version=1 if newest is None else newest[0] + 1,
        source=definition.source,
        compiled=msgspec.json.encode(definition.pipeline),
        files={},
        hash=definition.hash,
        author="human",
        author_kind="human",
        reason="first start" if newest is None else "file changed",
        at=at,
    )


class Plans:
    """Plans by version. The version in force is `current`; new packets use it."""

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        folder: Path,
        build_step: Callable[[str, str], Step],
        *,
        files: Path | None = None,
    ) -> None:
        self._manifests = manifests
        self._folder = folder
        self._files = files
        self._build_step = build_step
        self._plans: dict[int, Plan] = {}
        self._current: Plan | None = None

    def of(self, version: int) -> Plan:
        """The plan of a version that was added before."""
        return self._plans[version]

    def current(self) -> Plan:
        """The plan of the version in force."""
        assert self._current is not None, "no version is in force"
        return self._current

    def outputs(self) -> set[str]:
        """The connectors that the plans write through."""
        return {plan.pipeline.output.to for plan in self._plans.values()}

    def put_in_force(self, pipeline: Pipeline, version: int) -> Plan:
        """New packets use this version from now on."""
        plan = self._plan(pipeline, version)
        self._plans[version] = plan
        self._current = plan
        return plan

    async def add_older(
        self, versions: set[int], source_of: Callable[[int], Awaitable[str | None]]
    ) -> None:
        """Plans for packets that are pinned to other versions.

        Raises: InvalidState, if the journal lost one.
        """
        for version in sorted(versions - self._plans.keys()):
            source = await source_of(version)
            if source is None:
                raise InvalidState(f"the journal has packets of v{version} and no such version")
            file = str(self._folder / f"v{version}.pipo")
            # As it was journaled: the files it names may have moved on.
            pipeline = restore(Source(text=source, file=file))
            self._plans[version] = self._plan(pipeline, version)

    def _plan(self, pipeline: Pipeline, version: int) -> Plan:
        return make_plan(
            pipeline,
            version,
            manifests=self._manifests,
            folder=self._folder,
            files=self._files,
            build_step=self._build_step,
        )
