"""What a pipeline has to look like at rest, worked out packet by packet.

It knows no queues, commits, slots or restarts: a unit moves from step to step until something
stops it, and that is where the journal has to show it. Times are milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

WAIT_MS = 600_000
WITHIN_MS = 3_600_000
DATA_MS = 3_600_000
TRAIL_MS = 7_200_000
TIDY_EVERY_MS = 600_000
BRANCHES = ("left", "right")
KINDS = ("plain", "filtered", "refused", "invalid", "both", "half")
BREAKABLE = ("work", "right")
SETTLED = ("delivered", "filtered", "dead_lettered", "rejected")
ESCALATED, BRANCHED, VERIFYING = "escalated", "branched", "verifying"


@dataclass(frozen=True)
class Policies:
    """What the pipeline does with units that fail for good: at a node, at the output, unacked."""

    retries: int
    node: str
    output: str
    unacked: str
    parks: bool

    @property
    def text(self) -> str:
        retry = f"retry: {self.retries}, delay: 10m, max_delay: 10m"
        check = f"{{ check: external, within: 1h, on_fail: {{ then: {self.unacked} }} }}"
        return f"""
concurrency: 500
retention: {{ data: 1h, rejected: 1h, trail: 2h, dlq: 2h }}
agent: {{ control: true }}
input: {{ via: push, validate: ["data.kind != 'invalid'"] }}
nodes:
  pick: {{ from: input, filter: "data.kind != 'filtered'" }}
  work:
    from: pick
    transform: map
    with: {{ data: "${{data}}" }}
    on_error: {{ {retry}, then: {self.node} }}
  split: {{ from: work, route: {{ both: "data.kind in ['both', 'half']", one: "true" }} }}
  left: {{ from: split.both, filter: "data.kind != 'half'" }}
  right:
    from: split.both
    transform: map
    with: {{ data: "${{data}}" }}
    on_error: {{ {retry}, then: {self.node} }}
output:
  from: [split.one, left, right]
  to: file
  with: {{ path: ./out.jsonl }}
  validate: ["data.kind != 'refused'"]
  on_error: {{ {retry}, then: {self.output} }}
delivered: {check if self.parks else "{ check: ack }"}
"""


class Row(NamedTuple):
    """A unit in the journal. What its state leaves open is None or 0."""

    state: str
    cursor: str | None
    attempt: int
    retry_at: int | None
    write_no: int
    acked_write_no: int | None
    deadline_at: int | None
    settled_at: int | None
    has_data: bool


@dataclass
class Unit:
    id: str
    kind: str
    state: str
    cursor: str | None
    attempt: int = 0
    retry_at: int | None = None
    write_no: int = 0
    acked: int | None = None
    deadline_at: int | None = None
    settled_at: int | None = None
    has_data: bool = True
    failed_at: str = ""
    """The step that a replay goes back to."""
    copies: list[str] = field(default_factory=list)

    @property
    def packet(self) -> str:
        return self.id.partition(":")[0]

    @property
    def is_acked(self) -> bool:
        return self.acked == self.write_no + (self.state not in (VERIFYING, "delivered"))

    @property
    def is_open(self) -> bool:
        """It moves, or would: neither settled nor escalated nor split."""
        return self.state not in (*SETTLED, ESCALATED, BRANCHED)

    def row(self, now: int) -> Row:
        waits = self.is_open and self.retry_at is not None and self.retry_at > now
        return Row(
            self.state,
            self.cursor,
            self.attempt if self.is_open else 0,
            self.retry_at if waits else None,
            self.write_no,
            self.acked,
            self.deadline_at,
            self.settled_at,
            self.has_data,
        )


@dataclass
class World:
    """Around the pipeline: the time, the destination's mode, and the nodes that break."""

    now: int
    mode: str = "works"
    broken: set[str] = field(default_factory=set)


class Model:
    """All units there are. Every method leaves the model at rest, unless it is said otherwise."""

    def __init__(self, policies: Policies, world: World) -> None:
        self.policies = policies
        self.world = world
        self.units: dict[str, Unit] = {}
        self.paused = False
        self.tidy_at = 0
        self.counts: Counter[str] = Counter()
        """`all.*`: of packets that are gone, too."""
        self.may_be_written: set[str] = set()
        self.written: set[str] = set()

    # ── what it says ─────────────────────────────────────────────────────────

    def rows(self) -> dict[str, Row]:
        return {unit.id: unit.row(self.world.now) for unit in self.units.values()}

    def in_state(self, *states: str) -> list[str]:
        return [unit.id for unit in self.units.values() if unit.state in states]

    def rerunnable(self, node: str) -> list[str]:
        """Packets that ended well, passed this node, and still have their data.

        `pick` stands before the split, so what was split there cannot go back to it; `right` is
        passed by copies alone.
        """
        return [
            packet
            for packet in self.packets("delivered", "filtered")
            if bool(self.units[packet].copies) == (node == "right")
            and self._passed(packet, node).has_data
        ]

    def _passed(self, packet: str, node: str) -> Unit:
        return self.units[f"{packet}:right" if node == "right" else packet]

    def packets(self, *states: str) -> list[str]:
        return [id_ for id_ in self.in_state(*states) if ":" not in id_]

    def counters(self) -> dict[str, int]:
        """`now.*` and `all.*`, without zeros."""
        made = Counter(f"now.{u.state}" for u in self.units.values() if ":" not in u.id)
        return {name: count for name, count in (made + self.counts).items() if count}

    # ── what happens ─────────────────────────────────────────────────────────

    def push(self, packets: Mapping[str, str]) -> None:
        for packet, kind in packets.items():
            if kind == "invalid":
                made = Unit(packet, kind, "rejected", None, settled_at=self.world.now)
            else:
                made = Unit(packet, kind, "accepted", "pick")
                self.counts["all.accepted"] += 1
            self.units[packet] = made
        self.move()

    def turn(self, mode: str, broken: Iterable[str], in_hand: Iterable[str]) -> None:
        """The world is another one. A write that hung ends, even in a pause."""
        self.world.mode, self.world.broken = mode, set(broken)
        for id_ in in_hand:
            self._at_output(self.units[id_])
        self.move()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.move()

    def begin_anew(self) -> None:
        """The process has started: it cleans up first of all."""
        self.tidy()
        self.move()

    def jump(self) -> None:
        """Time has gone on."""
        if self.world.now >= self.tidy_at:
            self.tidy()
        self.move()

    def replay(self, packets: Iterable[str]) -> None:
        for packet in packets:
            for unit in self._leaves(packet):
                if unit.state == "dead_lettered":
                    self._go_on(unit, unit.failed_at)
        self.move()

    def purge(self, packets: Iterable[str]) -> None:
        for packet in packets:
            self._remove(packet)

    def resolve(self, ids: Iterable[str], action: str) -> None:
        for id_ in ids:
            unit = self.units[id_]
            if action == "retry":
                assert unit.cursor is not None
                self._go_on(unit, unit.cursor)
            else:
                unit.failed_at = unit.cursor or ""
                self._settle(unit, "dead_lettered" if action == "dead_letter" else "filtered")
        self.move()

    def rerun(self, packets: Iterable[str], node: str) -> None:
        for packet in packets:
            # It is no longer among the delivered until it ends again (decision 36).
            self.counts[f"all.{self.units[packet].state}"] -= 1
            self._go_on(self._passed(packet, node), node)
        self.move()

    def ack(self, id_: str) -> None:
        unit = self.units[id_]
        if not unit.is_acked:
            unit.acked = unit.write_no + (unit.state != VERIFYING)
        self.move()

    def tidy(self) -> None:
        """A clean-up, before anything else moves."""
        now = self.world.now
        self.tidy_at = now + TIDY_EVERY_MS
        for unit in self.units.values():
            if unit.state in ("delivered", "filtered", "rejected") and self._older(unit, DATA_MS):
                unit.has_data = False
        for packet in self.packets(*SETTLED):
            if self._older(self.units[packet], TRAIL_MS):
                self._remove(packet)

    # ── moving ───────────────────────────────────────────────────────────────

    def move(self) -> None:
        """Everything goes on until it rests."""
        if self.paused:
            return
        for id_ in list(self.units):
            unit = self.units[id_]
            while unit.is_open and self._step(unit):
                pass
            for copy in list(unit.copies):
                while self.units[copy].is_open and self._step(self.units[copy]):
                    pass

    def _step(self, unit: Unit) -> bool:
        """Whether the unit may go on after this step."""
        if unit.retry_at is not None and unit.retry_at > self.world.now:
            return False
        match unit.cursor:
            case "pick" if unit.kind == "filtered":
                self._settle(unit, "filtered")
            case "left" if unit.kind == "half":
                self._settle(unit, "filtered")
            case "work" | "right" if unit.cursor in self.world.broken:
                self._fail(unit, self.policies.node)
            case "pick":
                self._stand(unit, "work")
            case "work":
                self._stand(unit, "split")
            case "left" | "right":
                self._stand(unit, "$output")
            case "split" if unit.kind in ("both", "half"):
                self._split(unit)
            case "split":
                self._stand(unit, "$output")
            case "$output":
                return self._at_output(unit)
            case "$verify":
                return self._unsettled(unit)
            case _:
                raise AssertionError(unit)
        return True

    def _at_output(self, unit: Unit) -> bool:
        mode = self.world.mode
        if unit.kind == "refused":
            unit.failed_at = "$output"
            self._settle(unit, "dead_lettered")
            return False
        if mode in ("works", "fails_after", "hangs_after"):
            self.may_be_written.add(unit.id)
        if mode in ("works", "fails_after"):
            self.written.add(unit.id)
        if mode.startswith("hangs"):
            return False
        if mode.startswith("fails"):
            self._fail(unit, self.policies.output)
            return True
        acked = unit.is_acked
        unit.write_no += 1
        self._stand(unit, "$verify", VERIFYING)
        if not self.policies.parks:
            self._settle(unit, "delivered")
        elif not acked:
            unit.deadline_at = self.world.now + WITHIN_MS
        return not self.paused

    def _unsettled(self, unit: Unit) -> bool:
        """A written unit: it is acked, late, or waits."""
        if unit.is_acked:
            self._settle(unit, "delivered")
            return False
        assert unit.deadline_at is not None
        if unit.deadline_at > self.world.now:
            return False
        unit.deadline_at = None
        self._end(unit, "$output", self.policies.unacked)
        return False

    def _fail(self, unit: Unit, then: str) -> None:
        """One failed run of the step it stands at: one more, or the policy."""
        unit.attempt += 1
        unit.retry_at = None
        if unit.attempt <= self.policies.retries:
            unit.retry_at = self.world.now + WAIT_MS
        else:
            assert unit.cursor is not None
            self._end(unit, unit.cursor, then)

    def _end(self, unit: Unit, cursor: str, then: str) -> None:
        if then == "agent":
            self._stand(unit, cursor, ESCALATED)
            return
        unit.failed_at = cursor
        self._settle(unit, "filtered" if then == "drop" else "dead_lettered")

    def _stand(self, unit: Unit, cursor: str, state: str | None = None) -> None:
        unit.state = state or ("writing" if cursor == "$output" else "processing")
        unit.cursor = cursor
        unit.attempt, unit.retry_at = 0, None

    def _split(self, unit: Unit) -> None:
        self._stand(unit, "", BRANCHED)
        unit.cursor = None
        for branch in BRANCHES:
            copy = replace(unit, id=f"{unit.id}:{branch}", copies=[])
            # The packet's ack is that of each copy.
            copy.acked = 1 if unit.acked == unit.write_no + 1 else None
            copy.write_no = 0
            self._stand(copy, branch)
            self.units[copy.id] = copy
            unit.copies.append(copy.id)

    def _settle(self, unit: Unit, state: str) -> None:
        unit.state, unit.cursor = state, None
        unit.retry_at = unit.deadline_at = None
        unit.settled_at = self.world.now
        if ":" not in unit.id:
            if state in ("delivered", "filtered"):
                self.counts[f"all.{state}"] += 1
            return
        packet = self.units[unit.packet]
        states = {self.units[copy].state for copy in packet.copies}
        if states <= set(SETTLED):
            worst = ("dead_lettered", "delivered", "filtered")
            self._settle(packet, next(one for one in worst if one in states))

    def _go_on(self, unit: Unit, cursor: str) -> None:
        """A unit that had stopped goes on at a step, and what it came of waits for it again."""
        self._stand(unit, cursor)
        unit.settled_at = None
        packet = self.units[unit.packet]
        if packet is not unit:
            packet.state, packet.settled_at = BRANCHED, None

    # ── going ────────────────────────────────────────────────────────────────

    def _leaves(self, packet: str) -> list[Unit]:
        unit = self.units[packet]
        return [self.units[copy] for copy in unit.copies] or [unit]

    def _older(self, unit: Unit, age_ms: int) -> bool:
        return unit.settled_at is not None and unit.settled_at < self.world.now - age_ms

    def _remove(self, packet: str) -> None:
        for copy in self.units[packet].copies:
            del self.units[copy]
        del self.units[packet]
