"""A unit in memory, and the queue of those that are ready.

The journal is the truth; this is what the process needs to move a unit on. A
large payload is not kept while its unit waits: it is read back when its turn
comes, so that a full buffer stays small in memory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipo.connectors.contract import Repeat

OUTPUT: Final = "$output"
BATCH: Final = "$batch"
VERIFY: Final = "$verify"
# More than this many bytes of waiting payloads are left in the journal.
RESIDENT_BYTES_LIMIT: Final = 64 * 1024 * 1024


class _Unloaded:
    def __repr__(self) -> str:
        return "UNLOADED"


UNLOADED: Final = _Unloaded()


@dataclass(slots=True, eq=False)
class Unit:
    """One root or copy on its way.

    `cursor` is where it resumes: a node id, `$output`, `$batch`, `$verify`.

    `attempt` counts failed runs of the step at the cursor; `repeat` says whether a
    write of it may have happened before (contract.WriteUnit).
    """

    id: str
    version: int
    input: str
    trigger: str
    source: str
    received_at: int
    queue_seq: int
    cursor: str
    data: Any
    size: int
    attempt: int = 0
    hops: int = 0
    iteration: int = 0
    repeat: Repeat = "first"
    write_no: int = 0
    branch: str = ""
    """The way that a copy took from the splits, such as `a/c`; empty for a packet."""
    retry_at: int | None = None
    key: str | None = None
    holds_slot: bool = False
    """It keeps its slot until it settles (`concurrency: 1`)."""
    accepted: float = 0.0
    """When its acceptance was committed, on the monotonic clock; 0 when an earlier run did."""
    entered: float = 0.0
    """When the step at the cursor began in this run, on the monotonic clock; 0 before that."""
    acked_write_no: int | None = None
    """The newest write that was acked, which may be the one to come (decision 12)."""
    ack_by: str | None = None
    deadline_at: int | None = None
    """When the wait for its ack is over, wall time; None outside of one."""
    last_error: str = ""
    """What the last failed run of the step at the cursor said, in this run."""
    stall: str | None = None
    """The text of the stall that marked it: its next failed run escalates it (edge 238)."""
    upstream: Mapping[str, Any] | None = None
    """Where its packet was handed over from: `{pipeline, packet_id, key, depth}`."""

    def moved_on(self) -> None:
        """The step at the cursor is done: the next one has all its attempts and no mark."""
        self.attempt, self.last_error, self.stall = 0, "", None

    @property
    def packet_id(self) -> str:
        """The packet that it is, or that it is a copy of."""
        return self.id.partition(":")[0] if self.branch else self.id

    @property
    def parent_id(self) -> str:
        """The unit that split into it and others. Only for copies."""
        above = self.branch.rpartition("/")[0]
        return f"{self.packet_id}:{above}" if above else self.packet_id

    @property
    def batched(self) -> bool:
        """It waits in a batch; at the output it holds no slot then."""
        return self.cursor == BATCH

    @property
    def next_write_no(self) -> int:
        """The write that an ack confirms now: the last one at the check, before it the next."""
        return self.write_no + (self.cursor != VERIFY)

    @property
    def acked(self) -> bool:
        """Whether that write is acked."""
        return self.acked_write_no == self.next_write_no


class ReadyQueue:
    """Units in order of `queue_seq` (decision 45), with a limit on resident payload bytes.

    Copies have the place of their packet, and go in the order of their ids.
    """

    def __init__(self, resident_bytes_limit: int = RESIDENT_BYTES_LIMIT) -> None:
        # Units arrive in order, but for those that come again: the few go to the heap.
        self._line: deque[Unit] = deque()
        self._heap: list[tuple[int, str, Unit]] = []
        self._limit = resident_bytes_limit
        self._resident = 0

    def __len__(self) -> int:
        return len(self._line) + len(self._heap)

    def put(self, unit: Unit) -> None:
        """Queues a unit; its payload is left in the journal when memory is short."""
        if unit.data is not UNLOADED:
            if self._resident + unit.size > self._limit:
                unit.data = UNLOADED
            else:
                self._resident += unit.size
        line = self._line
        if (
            not line
            or unit.queue_seq > line[-1].queue_seq
            or _goes_before(line[-1], unit.queue_seq, unit.id)
        ):
            line.append(unit)
        else:
            heapq.heappush(self._heap, (unit.queue_seq, unit.id, unit))

    def pop(self) -> Unit | None:
        """The unit that came first, or None."""
        line, heap = self._line, self._heap
        if heap and not (line and _goes_before(line[0], *heap[0][:2])):
            unit = heapq.heappop(heap)[2]
        elif line:
            unit = line.popleft()
        else:
            return None
        if unit.data is not UNLOADED:
            self._resident -= unit.size
        return unit


def _goes_before(unit: Unit, queue_seq: int, unit_id: str) -> bool:
    """Whether a unit comes before another, which stands at this place under this id."""
    return unit.queue_seq < queue_seq or (unit.queue_seq == queue_seq and unit.id < unit_id)
