"""Makes a unit ready to be written: the output's rules hold, its settings and its key are known.

Nothing here touches a destination or the journal. What is prepared stays the same through
all retries of its write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipo.connectors.contract import Output, WriteUnit
from pipo_runner.pipeline.definition.failures import PACKET_ERRORS
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.units import Unit


class BrokenRule(Exception):
    """A rule of `output.validate` does not hold; the text says why."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(slots=True, eq=False)
class Prepared:
    """A unit whose settings and key are rendered; they stay the same through its retries."""

    unit: Unit
    plan: Plan
    settings: Mapping[str, Any]
    key: str
    explicit: bool
    output: Output
    place: str
    """The destination, with its connector: versions may write to one path in two ways."""
    made: Any = None
    """What the output made of it."""

    @property
    def new_key(self) -> str | None:
        """Its explicit key, while that is not in the journal yet."""
        return self.key if self.explicit and self.unit.key is None else None

    def write_unit(self) -> WriteUnit:
        unit = self.unit
        return WriteUnit(
            unit.id,
            self.key,
            unit.data,
            self.settings,
            unit.repeat,
            unit.trigger,
            unit.source,
            unit.upstream,
            self.made,
        )


class Preparer:
    """Prepares units; `output_of` gives the output of a version."""

    def __init__(self, *, output_of: Callable[[Plan], Output], scopes: Scopes) -> None:
        self._output_of = output_of
        self._scopes = scopes

    def prepare(self, unit: Unit, plan: Plan) -> Prepared:
        """The unit with its settings and its key.

        Raises: BrokenRule; one of PACKET_ERRORS, for what cannot be rendered or written.
        """
        meta = self._scopes.meta(unit, "output", key=unit.key) if plan.output_uses_meta else {}
        scope = self._scopes.step(unit, "output", with_meta=False) | {"meta": meta}
        output = self._output_of(plan)
        if plan.output_rules.rules:
            self._validate(unit, plan, output, scope)
        settings = plan.output_settings.render(scope)
        explicit = unit.key or output.explicit_key(settings)
        if explicit is not None and explicit != unit.key and plan.output_uses_key:
            # `meta.key` is the explicit key, known only once the settings are rendered.
            scope["meta"] = {**meta, "key": explicit}
            settings = plan.output_settings.render(scope)
        key = unit.id if explicit is None else explicit
        made = output.prepare(unit.data, settings, key)
        place = f"{plan.pipeline.output.to} {output.place(settings, key)}"
        return Prepared(unit, plan, settings, key, explicit is not None, output, place, made)

    def _validate(self, unit: Unit, plan: Plan, output: Output, scope: Mapping[str, Any]) -> None:
        meta = scope["meta"]
        if plan.rules_use_meta:
            meta = {**meta, "key": self._key_ahead(unit, plan, output, scope)}
        seen = {"data": unit.data, "meta": meta, "env": scope["env"]}
        broken = plan.output_rules.broken({**seen, "output": plan.pipeline.output.raw})
        if broken is not None:
            raise BrokenRule(*broken)

    def _key_ahead(self, unit: Unit, plan: Plan, output: Output, scope: Mapping[str, Any]) -> str:
        """The key that the write would have (O052); the unit's own where it has none to tell yet."""
        try:
            explicit = unit.key or output.explicit_key(plan.output_settings.render(scope))
        except PACKET_ERRORS:
            # What cannot be rendered is the write's failure, behind the rules.
            explicit = None
        return explicit or unit.id
