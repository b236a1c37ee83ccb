"""Every way to be killed at an output: points × shapes × batch sizes × checks.

A shape is a destination in one of its modes, as the manifests name them. `covering` picks
few cases of the product, in which each pair of values meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations

from pipo.connectors.contract import OutputRole
from pipo.connectors.registry import manifests
from tests.crash import test_batches, test_commit_points


def _role(connector: str) -> OutputRole:
    role = manifests()[connector].output
    assert role is not None
    return role


def _choices(connector: str, setting: str) -> tuple[str, ...]:
    return tuple(_role(connector).schema["properties"][setting]["enum"])


FORMATS = _choices("file", "format")
DATABASES = _choices("sqlite", "mode")
FILES = tuple(f"{kind}-{mode}" for kind in FORMATS for mode in _choices("file", "mode"))
CONNECTORS = {
    **dict.fromkeys(DATABASES, "sqlite"),
    **dict.fromkeys(FILES, "file"),
    "http": "http",
}
SHAPES = tuple(CONNECTORS)
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
        if self.size is not None and not _role(CONNECTORS[self.shape]).batches:
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
    pairs = {case: case.pairs for case in product()}
    left = set().union(*pairs.values())
    chosen: list[Case] = []
    taken: Counter[int | None] = Counter()
    while left:
        best = max(pairs, key=lambda case: (len(pairs[case] & left), -taken[case.size]))
        left -= pairs[best]
        taken[best.size] += 1
        chosen.append(best)
    return chosen
