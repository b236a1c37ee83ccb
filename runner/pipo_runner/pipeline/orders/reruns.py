"""Reruns: packets that ended well go back to a node that they passed.

Idea. A plan is made of the journal in one read: which packets, on which version, and which not
and why. What is carried out is that plan, by its ids, so that what was shown is what runs. Named
packets are all rerun, or none, in one commit; of a selection each group is a commit of its own,
looked up once more before it, and a packet that can no longer be rerun is skipped.

A rerun is on disk before anything runs. In the turn of the loop that hears of its commit the
units join the pending ones and the queue, behind whoever came before (`orders`). They go with
the data that they had when they first reached the node, which the change keeps whole, under
their old keys and as repeated writes. Of a split packet those copies run that passed the node;
what they came of waits for them once more.

Bounds. What is kept of one commit's data in memory: GROUP_BYTES_LIMIT for a group, and
NAMED_BYTES_LIMIT for named packets, which must be one commit: more is refused.
Source: edge 270-284, R029-R042.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pipo import durations
from pipo.clock import Clock
from pipo.connectors.contract import ConnectorError, Manifest
from pipo.crashpoints import reach
from pipo.errors import BadRequest, InvalidState, NotFound, PipoError
from pipo.journal import reruns, units
from pipo.journal.changes import DELIVERED, ESCALATED, FILTERED
from pipo.journal.interventions import Rerun
from pipo.journal.reruns import Candidate
from pipo.journal.states import DEAD_LETTERED
from pipo_runner.pipeline.definition.masking import signature
from pipo_runner.pipeline.definition.versions import Plans
from pipo_runner.pipeline.flow.units import OUTPUT as AT_OUTPUT
from pipo_runner.pipeline.orders.orders import (
    GROUP_PACKETS_LIMIT,
    LISTED_LIMIT,
    Family,
    Ledger,
    MovedUnit,
    Orders,
    Revived,
    SkippedPacket,
    WayBack,
    splits_of,
    taken_up,
)
from pipo_runner.pipeline.orders.rerun_path import OUTPUT, RerunStep, path

GROUP_BYTES_LIMIT: Final = 16 * 1024 * 1024
NAMED_BYTES_LIMIT: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one call asks for: named packets, or a selection of those that ended well."""

    from_: str
    ids: Sequence[str] = ()
    last: int | None = None
    since_ms: float | None = None
    current: bool = False
    by: str = ""

    @property
    def cursor(self) -> str:
        return AT_OUTPUT if self.from_ == OUTPUT else self.from_


@dataclass(frozen=True, slots=True)
class RerunPacket:
    """A packet, the version it runs on, and what of it runs again."""

    packet_id: str
    version: int
    units: list[MovedUnit]


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, or what was carried out of it; the lists are cut, the counts are not.

    `current` is the version that the packets are pinned to anew.
    """

    dry: bool
    rerun: int
    packets: list[RerunPacket]
    skipped: list[SkippedPacket]
    skipped_count: int
    path: list[RerunStep]
    current: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """`ready` and `skipped` stand in the order asked for, else the newest first.

    `version` is what they are pinned to anew, None where each keeps its own.
    """

    ready: list[Candidate]
    skipped: list[SkippedPacket]
    version: int | None
    broken: Mapping[int, str] = field(default_factory=dict)


class Reruns:
    """`may` raises while the pipeline is in no state for it; `prepare` makes plans and outputs
    of older versions ready, and raises where one cannot be."""

    def __init__(
        self,
        *,
        name: str,
        journal: Ledger,
        orders: Orders,
        plans: Plans,
        manifests: Mapping[str, Manifest],
        prepare: Callable[[set[int]], Awaitable[None]],
        may: Callable[[], None],
        way_back: WayBack,
        clock: Clock,
        redact: Callable[[str], str],
    ) -> None:
        self._name = name
        self._journal = journal
        self._orders = orders
        self._plans = plans
        self._manifests = manifests
        self._prepare = prepare
        self._may = may
        self._way_back = way_back
        self._clock = clock
        self._redact = redact

    async def rerun(self, wanted: Wanted, *, dry: bool) -> Answer:
        """The plan; unless it is `dry` it is carried out, and on disk on return.

        Cancelled: only the wait ends. Raises: BadRequest, for a node that the version in force
            does not have, where that is to run; NotFound and InvalidState, for a named packet
            or more, and then none is rerun; Unavailable, when too many wait for the journal.
        """
        self._may()
        wanted = replace(wanted, by=signature(wanted.by, self._redact))
        return await self._orders.carry_out(self._all_of_it(wanted, dry), name="rerun")

    async def _all_of_it(self, wanted: Wanted, dry: bool) -> Answer:
        planned = await self._orders.in_turn(lambda: self._planned(wanted))
        steps = self._path(planned, wanted)
        if dry:
            return _answer(planned.ready, planned.skipped, planned, wanted, steps, dry=True)
        done, left = await self._carried_out(planned, wanted)
        return _answer(done, [*planned.skipped, *left], planned, wanted, steps, dry=False)

    # ── the plan ─────────────────────────────────────────────────────────────

    async def _planned(self, wanted: Wanted) -> Planned:
        """Made again without the versions that do not run any more, as often as one is found."""
        version = self._pinned(wanted)
        broken: dict[int, str] = {}
        while True:
            found = await self._looked_up(wanted, broken)
            planned = Planned([], [], version, broken)
            for candidate in found:
                reason = _obstacle(candidate, wanted, broken, self._no_node)
                if reason is None:
                    planned.ready.append(candidate)
                elif wanted.ids:
                    raise self._refusal(candidate, reason)
                else:
                    planned.skipped.append(SkippedPacket(candidate.id, reason))
            if wanted.current or not await self._broken(planned.ready, broken):
                return planned

    def _pinned(self, wanted: Wanted) -> int | None:
        if not wanted.current:
            return None
        plan = self._plans.current()
        if wanted.from_ != OUTPUT and wanted.from_ not in plan.nodes:
            names = ", ".join([*plan.nodes, OUTPUT])
            raise BadRequest(
                f"v{plan.version} has no node {wanted.from_[:100]!r}", hint=f"one of {names}"
            )
        return plan.version

    async def _looked_up(self, wanted: Wanted, broken: Mapping[int, str]) -> list[Candidate]:
        rows, node = self._journal.rows, wanted.from_
        if not wanted.ids:
            since = wanted.since_ms
            since_ms = 0 if since is None else max(0, round(self._clock.now_ms() - since))
            return await reruns.settled(
                rows,
                node,
                since_ms=since_ms,
                last=wanted.last,
                current=wanted.current,
                broken=broken,
            )
        ids = list(dict.fromkeys(wanted.ids))
        found = await reruns.named(rows, node, ids, current=wanted.current, broken=broken)
        for id_ in ids:
            if id_ not in found:
                raise NotFound(
                    f"pipeline {self._name!r} has no packet {id_!r}",
                    hint=f"nothing was changed; pipo packets {self._name} lists the newest",
                )
        return [found[id_] for id_ in ids]

    async def _broken(self, ready: Sequence[Candidate], broken: dict[int, str]) -> bool:
        """Whether a version of these packets does not run; `broken` says why not."""
        versions = {unit.version for one in ready for unit in one.reached}
        before = len(broken)
        for version in sorted(versions):
            try:
                await self._prepare({version})
            except (PipoError, ConnectorError) as error:
                broken[version] = f"its version v{version} does not run any more: {error.message}"
        return len(broken) > before

    def _no_node(self, version: int, node: str) -> str:
        """That a version lacks a node; which it has, where it is in force and so at hand."""
        plan = self._plans.current()
        names = f" (it has {', '.join([*plan.nodes, OUTPUT])})" if plan.version == version else ""
        return f"its version v{version} has no node {node[:100]!r}{names}"

    def _refusal(self, candidate: Candidate, reason: str) -> InvalidState:
        hint = "nothing was changed; leave it out"
        if candidate.root is not None:
            hint = f"nothing was changed; name the packet {candidate.root}, not a copy of it"
        elif candidate.state == DEAD_LETTERED:
            hint = f"nothing was changed; pipo dlq replay {self._name} {candidate.id}"
        elif candidate.state == ESCALATED:
            hint = f"nothing was changed; pipo resolve {self._name} {candidate.id} settles it"
        return InvalidState(f"{candidate.id} cannot be rerun: {reason}", hint=hint)

    def _path(self, planned: Planned, wanted: Wanted) -> list[RerunStep]:
        if planned.version is not None:
            versions = [planned.version]
        else:
            own = {unit.version for one in planned.ready for unit in one.reached}
            versions = sorted(own, reverse=True)
        pipelines = [self._plans.of(version).pipeline for version in versions]
        return path(pipelines, wanted.from_, self._manifests) if planned.ready else []

    # ── carrying it out ──────────────────────────────────────────────────────

    async def _carried_out(
        self, planned: Planned, wanted: Wanted
    ) -> tuple[list[Candidate], list[SkippedPacket]]:
        """Those that run, and those that can no longer, as the plan lists them."""
        done: set[str] = set()
        left: list[SkippedPacket] = []
        for group in _groups(planned.ready, whole=bool(wanted.ids)):
            ids = [one.id for one in group]
            try:
                work = partial(self._group, ids, planned, wanted)
                ran, skipped = await self._orders.in_turn(work)
            except InvalidState as error:
                if not done:
                    raise
                # It ends, and what was committed stands.
                left += [SkippedPacket(id_, error.message) for id_ in ids]
                continue
            done |= ran
            left += skipped
        return [one for one in planned.ready if one.id in done], left

    async def _group(
        self, ids: Sequence[str], planned: Planned, wanted: Wanted
    ) -> tuple[set[str], list[SkippedPacket]]:
        self._may()
        rows = self._journal.rows
        found = await reruns.named(
            rows, wanted.from_, ids, current=wanted.current, broken=planned.broken
        )
        families = await units.families(rows, ids)
        moving = [unit.id for one in found.values() for unit in one.reached]
        starts = await reruns.starts(rows, wanted.from_, moving)
        revived: list[Revived] = []
        skipped: list[SkippedPacket] = []
        for id_ in ids:
            candidate = found.get(id_)
            if candidate is None:
                reason: str | None = "it is gone"
            else:
                reason = _obstacle(candidate, wanted, planned.broken, self._no_node)
                if reason is None and any(unit.id not in starts for unit in candidate.reached):
                    reason = "its data in the journal is damaged"
            if candidate is not None and reason is None:
                revived.append(self._revived(candidate, families[id_], starts, planned, wanted))
            elif wanted.ids:
                refused = candidate or Candidate(id_, None, "", 0, False, [])
                raise self._refusal(refused, str(reason))
            else:
                skipped.append(SkippedPacket(id_, str(reason)))
        # A pipeline that began to end meanwhile takes nothing up any more.
        self._may()
        reach("rerun.before_commit")
        await self._orders.commit(
            [change for one in revived for change in one.changes], lambda: self._landed(revived)
        )
        return {one.packet_id for one in revived}, skipped

    def _revived(
        self,
        candidate: Candidate,
        family: Family,
        starts: Mapping[str, reruns.Start],
        planned: Planned,
        wanted: Wanted,
    ) -> Revived:
        # Copies have the place of their packet.
        place, at = self._way_back.next_place(), self._clock.now_ms()
        standing = {unit.id: unit for unit in family}
        moving = [standing[unit.id] for unit in candidate.reached]
        return Revived(
            candidate.id,
            [
                taken_up(
                    unit,
                    wanted.cursor,
                    place,
                    iteration=starts[unit.id].iteration,
                    version=planned.version or 0,
                )
                for unit in moving
            ],
            splits_of(family, moving),
            [
                Rerun(
                    unit.id,
                    wanted.cursor,
                    starts[unit.id].data,
                    wanted.by,
                    at,
                    place,
                    starts[unit.id].iteration,
                    planned.version,
                )
                for unit in moving
            ],
        )

    def _landed(self, revived: Sequence[Revived]) -> None:
        reach("rerun.after_commit")
        self._way_back.join(revived)


def since_of(text: str) -> float | None:
    """Milliseconds of a `since`, None for none. Raises: BadRequest, with examples."""
    if not text:
        return None
    try:
        return durations.parse(text)
    except ValueError as error:
        raise BadRequest(f"since: {error}", hint="say how far back, like 30m, 24h or 7d") from error


def _obstacle(
    candidate: Candidate,
    wanted: Wanted,
    broken: Mapping[int, str],
    no_node: Callable[[int, str], str],
) -> str | None:
    """Why a packet cannot be rerun so; None for one that can."""
    node = wanted.from_
    if candidate.root is not None:
        return "it is a copy"
    if candidate.state not in (DELIVERED, FILTERED):
        return f"it is {candidate.state}, not delivered or filtered"
    for pinned, known in (
        (candidate.version, candidate.known),
        *((unit.version, unit.known) for unit in candidate.reached),
    ):
        if not known:
            return broken.get(pinned) or no_node(pinned, node)
    if not candidate.reached:
        return f"it never reached {node!r}"
    if any(unit.split for unit in candidate.reached):
        return f"it fanned out at or after {node!r}: rerun it from a node inside the branch"
    if any(unit.size is None for unit in candidate.reached):
        return "its payload was already cleared by retention"
    return None


def _groups(ready: Sequence[Candidate], *, whole: bool) -> Iterator[Sequence[Candidate]]:
    """What is committed together, those that came first at first; named packets all at once.

    Raises: InvalidState, for named packets that are too large for one commit.
    """
    if whole:
        size = sum(_size(one) for one in ready)
        if size > NAMED_BYTES_LIMIT:
            raise InvalidState(
                f"these packets hold {size} bytes, and {NAMED_BYTES_LIMIT} is the most for one list",
                hint="nothing was changed; name fewer of them, or use last, since or all",
            )
        yield ready
        return
    group: list[Candidate] = []
    size = 0
    for one in reversed(ready):
        if group and (len(group) == GROUP_PACKETS_LIMIT or size + _size(one) > GROUP_BYTES_LIMIT):
            yield group
            group, size = [], 0
        group.append(one)
        size += _size(one)
    if group:
        yield group


def _size(candidate: Candidate) -> int:
    return sum(unit.size or 0 for unit in candidate.reached)


def _answer(
    packets: Sequence[Candidate],
    skipped: Sequence[SkippedPacket],
    planned: Planned,
    wanted: Wanted,
    steps: list[RerunStep],
    *,
    dry: bool,
) -> Answer:
    return Answer(
        dry=dry,
        rerun=len(packets),
        packets=[
            RerunPacket(
                one.id,
                planned.version or one.reached[0].version,
                [MovedUnit(unit.id, wanted.cursor) for unit in one.reached],
            )
            for one in packets[:LISTED_LIMIT]
        ],
        skipped=list(skipped[:LISTED_LIMIT]),
        skipped_count=len(skipped),
        path=steps,
        current=planned.version,
    )
