"""From an offered verification to what a connector's checks take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pipo import payload
from pipo.connectors.contract import CheckContext, Checks, ConnectorError, Target
from pipo.errors import PipoError
from pipo.rpc.stubs.checker_pb2 import Verification


class Unjudgeable(Exception):
    """This checker can never judge it; the text is the verdict's message."""


class Connectors(Protocol):
    """The connectors as far as a checker needs them."""

    def offered(self, output: str) -> frozenset[str]:
        """The checks that an output offers and a checker runs; empty for an unknown output."""

    def build_checks(self, output: str) -> Checks:
        """The checks of an output. Raises: PipoError or ConnectorError, if there are none."""


class InstalledConnectors:
    """The connectors that the registry finds, each imported when it is first needed."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context

    def offered(self, output: str) -> frozenset[str]:
        from pipo.connectors import registry

        manifest = registry.manifests().get(output)
        role = manifest.output if manifest is not None else None
        return frozenset(role.checks if role is not None else ())

    def build_checks(self, output: str) -> Checks:
        from pipo.connectors import registry

        return registry.build_checks(output, self._context)


class Targets:
    """Makes targets for one pipeline, and keeps the checks that it has built."""

    def __init__(self, connectors: Connectors) -> None:
        self._connectors = connectors
        self._outputs: dict[str, _Output | Unjudgeable] = {}
        # Nearly every unit of a pipeline goes to the same place.
        self._place: tuple[bytes, Any] = (b"{}", {})

    def target(self, offer: Verification) -> tuple[Checks, Target]:
        """The checks and the target of an offer.

        Raises: Unjudgeable, for an output, a check or a text that this checker cannot use.
        """
        output = self._output(offer.output)
        if offer.check not in output.offered:
            raise Unjudgeable(
                f"output {offer.output!r} does not offer the check {offer.check!r}; "
                f"a checker runs: {', '.join(sorted(output.offered)) or 'none of its checks'}"
            )
        try:
            settings = payload.decode_own(getattr(offer, "with") or b"{}")
            result = payload.decode_own(offer.result) if offer.result else None
            place = offer.target or b"{}"
            if self._place[0] != place:
                self._place = (place, payload.decode_own(place))
        except payload.BadPayload as error:
            raise Unjudgeable(
                f"the offer of check {offer.check!r} is not JSON: {error}: this is a bug in Pipo"
            ) from error
        return output.checks, Target(offer.check, settings, result, self._place[1])

    def built(self) -> list[Checks]:
        """Every object that must be closed."""
        return [made.checks for made in self._outputs.values() if isinstance(made, _Output)]

    def _output(self, name: str) -> _Output:
        made = self._outputs.get(name)
        if made is None:
            made = self._outputs[name] = _build(self._connectors, name)
        if isinstance(made, Unjudgeable):
            raise Unjudgeable(str(made))
        return made


@dataclass(frozen=True, slots=True)
class _Output:
    checks: Checks
    offered: frozenset[str]


def _build(connectors: Connectors, name: str) -> _Output | Unjudgeable:
    try:
        return _Output(connectors.build_checks(name), connectors.offered(name))
    except (PipoError, ConnectorError) as error:
        return Unjudgeable(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
