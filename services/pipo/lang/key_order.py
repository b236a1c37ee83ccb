"""The canonical order of a file's keys, read from the schemas that state the keys.

A map whose schema names its keys has an order; a map whose keys are the author's
(inputs, nodes, route branches, columns, headers, data) has none: its order can
have a meaning, or show in what a pipeline writes.

Source: facts §1, §2, §4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pipo.lang import schema
from pipo.lang.model import KINDS
from pipo.lang.rules.policies import UNIVERSAL_CHECKS

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest, Role

MERGE: Final = "<<"


class MapView(Protocol):
    """A map as the order sees it: the texts of keys and of the values that name connectors."""

    def word(self, key: str) -> str | None:
        """The text that stands at a key; None when there is none."""


class KeyOrder:
    """What stands below each map of a file.

    `output` is the file's output block, which decides what the check's settings mean.
    """

    root: Final[schema.Schema] = schema.FILE

    def __init__(self, manifests: Mapping[str, Manifest], output: MapView | None) -> None:
        self._manifests = manifests
        self._output = output

    def inner(self, block: schema.Schema | None, view: MapView, key: str | None) -> Any:
        """The schema of the value at a key of a map; None when nothing is known of it."""
        if block is None or key is None:
            return None
        if key == "with" and (settings := self._settings(block, view)) is not None:
            return settings
        named = _named(block).get(key)
        more = block.get("additionalProperties")
        return named if named is not None else more if isinstance(more, Mapping) else None

    def _settings(self, block: schema.Schema, view: MapView) -> Any:
        if block is schema.INPUT:
            return self._role("input", view.word("via"))
        if block is schema.OUTPUT:
            return self._role("output", view.word("to"))
        if block is schema.DELIVERED:
            return self._check(view.word("check") or "ack")
        if block is schema.NODE:
            for kind in KINDS:
                if found := self._role(kind, view.word(kind)):
                    return found
        return None

    def _role(self, role: str, name: str | None) -> Any:
        found: Role | None = getattr(self._manifests.get(name or ""), role, None)
        return found.schema if found else None

    def _check(self, name: str) -> Any:
        to = self._output.word("to") if self._output else None
        manifest = self._manifests.get(to or "")
        if manifest is None or name in UNIVERSAL_CHECKS or name not in manifest.checks:
            return None
        return manifest.checks[name].schema


def has_order(block: schema.Schema | None) -> bool:
    """Whether the keys of such a map are the language's own, so that their order means nothing."""
    return block is not None and bool(_named(block))


def items(block: schema.Schema | None) -> Any:
    """The schema of a list's items."""
    return block.get("items") if block else None


def arranged(block: schema.Schema | None, keys: Sequence[str | None]) -> list[int]:
    """The positions of a map's keys in canonical order.

    What a map merges stands first, unknown keys last, in the order they have.
    """
    positions = range(len(keys))
    if block is None or not has_order(block):
        return list(positions)
    rank = {name: index for index, name in enumerate([MERGE, *_named(block)])}
    return sorted(positions, key=lambda at: rank.get(keys[at] or "", len(rank)))


def _named(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys that a schema names."""
    return block.get("properties") or {}
