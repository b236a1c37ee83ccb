"""Makes new data: the settings arrive rendered, so the work is done."""

from __future__ import annotations

from typing import Any, Literal

from pipo.connectors.contract import Context, Refused, Step, StepCall

_MISSING: Any = object()


def build(context: Context) -> Step:
    return MapTransform()


class MapTransform:
    pure: Literal[True] = True

    def run(self, call: StepCall) -> Any:
        """Raises: Refused, when the template yields nothing at all for this packet."""
        made = call.settings.get("data", _MISSING)
        if made is _MISSING:
            raise Refused(
                "`data` of this map yields nothing for this packet",
                hint="give it a fallback, such as `${data.x ?? null}`",
            )
        return made
