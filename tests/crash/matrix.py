"""Every way to be killed at an output: points × shapes × batch sizes × checks.

A shape is a destination in one of its modes. `covering` picks few cases of the product
in which each pair of values meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations

from tests.crash import test_batches, test_commit_points

FORMATS = ("jsonl", "json", "csv", "text")
MODES = ("append", "write")
FILES = tuple(f"{kind}-{mode}" for kind in FORMATS for mode in MODES)
BATCHED = ("insert", "upsert", *FILES)
SHAPES = (*BATCHED, "http")
SIZES = (None, 1, 7, 100)
ACK, OWN = "ack", "own"
# Between a packet's acceptance and its delivery, for every destination, and only in a batch.
POINTS = (*test_commit_points.COVERED, *test_batches.POINTS)


@dataclass(frozen=True)
class Case:
    """A kill at `point`; `size` is the batch's, None without one."""

    point: str
    shape: str
    size: int | None
    check: str

    @property
    def name(self) -> str:
        return f"{self.shape} {self.size or 'unbatched'} {self.check}"

    @property
    def pairs(self) -> frozenset[tuple[tuple[str, object], ...]]:
        """Each two of its four values, with their names."""
        return frozenset(combinations(asdict(self).items(), 2))

    @property
    def is_possible(self) -> bool:
        """Whether the point is on its way, and the output takes the batch."""
        if self.size is not None and self.shape not in BATCHED:
            return False
        if self.point in test_batches.POINTS and self.size is None:
            return False
        return self.check == OWN or self.point != "verdict.before_commit"


def product() -> Iterator[Case]:
    """Every case that can be."""
    for point in POINTS:
        for shape in SHAPES:
            for size in SIZES:
                for check in (ACK, OWN):
                    case = Case(point, shape, size, check)
                    if case.is_possible:
                        yield case


@cache
def covering() -> Sequence[Case]:
    """Cases in which every pair of values that can meet does; each adds the most pairs it can.

    Among equals the size is taken that was taken least.
    """
    cases = list(product())
    left = {pair for case in cases for pair in case.pairs}
    chosen: list[Case] = []
    taken: Counter[int | None] = Counter()
    while left:
        best = max(cases, key=lambda case: (len(case.pairs & left), -taken[case.size]))
        left -= best.pairs
        taken[best.size] += 1
        chosen.append(best)
    return chosen
