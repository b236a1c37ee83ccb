"""Another version under a running pipeline: an applied text, or one from its history.

Idea. A version is complete before it is in force: checked, planned, its new steps open. Then
one commit adds it to the journal and says that it was applied, and in the turn of the loop that
hears of that commit the intake begins to pin packets to it. That turn is the safe point: no
step is interrupted, every packet in flight stays with the version that accepted it, and an
intake that is under way keeps the version it began with (edge 11).

Failure cases. Whatever is refused, is refused before the commit and leaves nothing. A crash
before it leaves the older version, one after it the newer: the next start runs the newest of
the journal as long as the file has not changed (edge 342, 360). One change at a time: a second
one is refused, since what it was compared with would no longer be in force.

Rejected: holding intake back until the older packets are done. Versions are pinned so that
nobody has to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pipo.clock import Clock
from pipo.connectors.contract import ConnectorError, Manifest
from pipo.crashpoints import reach
from pipo.errors import Forbidden, InvalidState, NotFound, PipoError, Unavailable
from pipo.journal import versions
from pipo.journal.changes import VersionApplied
from pipo.journal.interventions import REASON_CHARS
from pipo.lang import texts as files_of
from pipo.lang.check import Source, parse
from pipo.lang.model import Pipeline
from pipo.lang.texts import Read, Texts
from pipo_runner.pipeline.definition.masking import signature
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.unbuilt import refuse_unbuilt
from pipo_runner.pipeline.definition.versions import Edition, Plans, added
from pipo_runner.pipeline.orders.live_changes import bound_keys
from pipo_runner.pipeline.orders.orders import Ledger

APPLIED: Final = "applied"
FILE_CHANGED: Final = "file_changed"
# How long the steps of a version may take to open.
READY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class FileWarning:
    """A file that a version was made with says something else today (edge 356)."""

    code: str
    path: str
    version: int
    recorded: str
    current: str | None
    hint: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of it; `changed` is False where the same text was in force already."""

    version: int
    previous: int
    changed: bool
    pending_older: int
    warnings: list[FileWarning]
    rolled_back_to: int | None = None


class Applying:
    """Applies versions to one running pipeline.

    `may(what)` raises unless it runs; `make_ready(plan)` opens what a plan needs;
    `in_force(edition)` hears of a version once it is on disk; `on_disk()` reads today's files.
    """

    def __init__(
        self,
        *,
        name: str,
        file: Path,
        journal: Ledger,
        plans: Plans,
        manifests: Mapping[str, Manifest],
        may: Callable[[str], None],
        make_ready: Callable[[Plan], Awaitable[None]],
        in_force: Callable[[Edition], None],
        clock: Clock,
        redact: Callable[[str], str],
        uploaded_code: bool,
        on_disk: Callable[[], Read],
    ) -> None:
        self._name = name
        self._file = file
        self._journal = journal
        self._plans = plans
        self._manifests = manifests
        self._may = may
        self._make_ready = make_ready
        self._in_force = in_force
        self._clock = clock
        self._redact = redact
        self._uploaded_code = uploaded_code
        self._on_disk = on_disk
        self._busy = False

    async def apply(
        self, source: str, files: Mapping[str, str], *, by: str, reason: str
    ) -> Applied:
        """Puts a text in force; `files` are the texts of all it names, or else those in force.

        Durable: on return it survives a power cut.
        Cancelled: what has gone to the journal comes into force all the same.
        Raises: InvalidPipeline with the findings; InvalidState, for what may not change live
            and while another change is under way; Forbidden, for code from elsewhere.
        """
        self._may("apply")
        now = self._now()
        given = files or now.texts.files
        pipeline = self._checked(source, given)
        edition = replace(
            now, pipeline=pipeline, texts=files_of.collect(source, pipeline, given.get)
        )
        if not self._uploaded_code:
            await self._refuse_strange_code(edition, now)
        return await self._change(edition, by, reason or APPLIED)

    async def rollback(self, version: str, *, by: str) -> Applied:
        """Puts the text of an earlier version in force again, as a new one (edge 344).

        Raises: BadRequest, NotFound, for the version; else as `apply`.
        """
        self._may("rollback")
        found = await versions.find(self._journal.rows, self._name, version)
        pipeline = self._checked(found.source, found.files)
        edition = replace(self._now(), pipeline=pipeline, texts=found.texts)
        applied = await self._change(edition, by, f"rollback to v{found.version}")
        warnings = await asyncio.to_thread(self._warnings, found)
        return replace(applied, rolled_back_to=found.version, warnings=warnings)

    # ── what may not be ──────────────────────────────────────────────────────

    def _now(self) -> Edition:
        return self._plans.edition(self._plans.current().version)

    def _checked(self, source: str, files: Mapping[str, str]) -> Pipeline:
        """The model of a text. Raises: InvalidPipeline; InvalidState, for what is not built."""
        pipeline = parse(Source(source, str(self._file), files), self._manifests)
        refuse_unbuilt(pipeline)
        return pipeline

    def _refuse_bound(self, edition: Edition, now: Edition) -> None:
        keys = bound_keys(now.pipeline, edition.pipeline)
        if keys:
            raise InvalidState(
                f"{', '.join(keys)} may not change while {self._name} runs",
                hint=f"save it as {self._file}, then: pipo restart {self._name}",
            )

    async def _refuse_strange_code(self, edition: Edition, now: Edition) -> None:
        """Code that is neither in force nor in the operator's file came from elsewhere.

        Source: decision 38.
        """
        strange = _code_of(edition) - _code_of(now)
        if not strange:
            return
        strange -= await asyncio.to_thread(self._own_code)
        if strange:
            raise Forbidden(
                f"{', '.join(sorted({name for name, _ in strange}))} of this text is code that is "
                f"not in {self._file}, and engine.allow_uploaded_code is off",
                hint=f"save it there and apply that file, or pipo restart {self._name}",
            )

    def _own_code(self) -> set[tuple[str, str]]:
        """The code of the pipeline's file as it stands; none when it is no pipeline."""
        folder = self._file.parent
        try:
            source = self._file.read_text(encoding="utf-8")
            pipeline = parse(Source(source, str(self._file)), self._manifests)
            own = files_of.collect(source, pipeline, files_of.on_disk(folder))
        except (OSError, UnicodeDecodeError, PipoError):
            return set()
        return _code_of(Edition(0, pipeline, own, folder))

    # ── the change ───────────────────────────────────────────────────────────

    async def _change(self, edition: Edition, by: str, reason: str) -> Applied:
        if self._busy:
            raise InvalidState(
                f"another version of {self._name} is being applied", hint="apply it after that"
            )
        now = self._now()
        self._refuse_bound(edition, now)
        if edition.texts.hash == now.texts.hash:
            return await self._answer(now.version, now.version, changed=False)
        self._busy = True
        edition = replace(edition, version=now.version + 1)
        try:
            if _code_of(edition) - _code_of(now):
                await asyncio.to_thread(self._import_functions, edition)
            await self._prepare(edition)
            # What has stopped meanwhile takes no version any more.
            self._may("apply")
            landed = self._commit(edition, now, by, reason)
        except BaseException:
            self._plans.forget(edition.version)
            self._busy = False
            raise
        # Nobody cancels this wait but the end of the process.
        await asyncio.shield(landed)
        return await self._answer(edition.version, now.version, changed=True)

    def _import_functions(self, edition: Edition) -> None:
        """The functions' module imports, as at a start. Raises: InvalidPipeline (P059)."""
        source = Source(edition.texts.source, str(self._file), edition.texts.files)
        parse(source, self._manifests, import_modules=True)

    async def _prepare(self, edition: Edition) -> None:
        try:
            async with asyncio.timeout(READY_S):
                await self._make_ready(self._plans.prepare(edition))
        except TimeoutError as error:
            raise Unavailable(
                f"what this version of {self._name} needs was not ready within {READY_S:g} s",
                hint="nothing was changed; try again",
            ) from error
        except ConnectorError as error:
            raise InvalidState(error.message, hint="nothing was changed") from error

    def _commit(self, edition: Edition, now: Edition, by: str, reason: str) -> asyncio.Future[None]:
        """On its way to the journal; in the turn that hears that it is there, it is in force."""
        author = signature(by, self._redact)
        why = self._redact(reason)[:REASON_CHARS]
        at = self._clock.now_ms()
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            self._busy = False
            if error is not None:
                self._plans.forget(edition.version)
                landed.set_exception(error)
                return
            reach("version.after_commit")
            self._plans.put_in_force(edition)
            self._in_force(edition)
            landed.set_result(None)

        reach("version.before_commit")
        self._journal.submit(
            added(edition, author, "human", why, at),
            VersionApplied(edition.version, now.version, author, "human", why, at),
            done=done,
        )
        return landed

    async def _answer(self, version: int, previous: int, *, changed: bool) -> Applied:
        older = await versions.pending_older(self._journal.rows, version)
        return Applied(version, previous, changed, older, [])

    def _warnings(self, found: versions.Version) -> list[FileWarning]:
        """The files of a version that say something else today; it runs with its own texts."""
        read = self._on_disk()
        warnings = []
        for path, recorded in found.texts.digests.items():
            try:
                text = read(path)
            except NotFound:
                text = None
            current = None if text is None else Texts(text).hash
            if current != recorded:
                hint = f"v{found.version} runs with the text it was made with; a start on a "
                hint += "changed file takes today's"
                warnings.append(
                    FileWarning(FILE_CHANGED, path, found.version, recorded, current, hint)
                )
        return warnings


def _code_of(edition: Edition) -> set[tuple[str, str]]:
    """What a version runs of its author's: the files of its functions, and its programs."""
    module: Any = edition.pipeline.fn
    schemas = set(files_of.named(edition.pipeline)) - {module}
    found = {
        (path, digest) for path, digest in edition.texts.digests.items() if path not in schemas
    }
    found |= {
        (f"node {node.id}", repr(sorted(node.settings.items())))
        for node in edition.pipeline.nodes
        if node.kind in ("tap", "transform") and node.uses == "exec"
    }
    return found
