"""Finds the connectors and builds what a pipeline asks of them.

A connector is a folder beside this file, or an installed package that names its
folder in the entry-point group `pipo.connectors`. `manifests` imports nothing but
`manifest.py` files; an implementation is imported when it is first built, so a
process pays for its own connectors and no others.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any, Literal, cast

from pipo.connectors.contract import (
    CheckContext,
    Checks,
    ConnectorError,
    Context,
    Input,
    InputContext,
    InputSpec,
    Manifest,
    Output,
    Step,
)
from pipo.errors import InvalidState, NotFound

ENTRY_POINTS = "pipo.connectors"
HOME = __name__.rpartition(".")[0]

Kind = Literal["input", "tap", "transform", "output", "checks", "agent"]


@cache
def manifests() -> Mapping[str, Manifest]:
    """Every connector's manifest, by name.

    Raises: ConnectorError, for an installed one that does not load or takes a name twice.
    """
    return MappingProxyType({name: manifest for name, (manifest, _) in _found().items()})


def agents() -> Mapping[str, Manifest]:
    """The manifests of those that `agent:` may name."""
    return {name: made for name, made in manifests().items() if made.agent is not None}


def is_built(kind: Kind, name: str) -> bool:
    """Whether the connector has the module of a role, not only its manifest entry."""
    found = _found().get(name)
    return found is not None and find_spec(f"{found[1]}.{kind}") is not None


def require_built(kind: Kind, name: str, settings: Mapping[str, Any]) -> None:
    """Passes when this version can run a role with these settings, rendered or not.

    A module says what it cannot do yet in `refuse(settings)`.
    Raises: NotFound, InvalidState.
    """
    refuse = getattr(_module(kind, name), "refuse", None)
    if refuse is not None:
        refuse(settings)


def build_inputs(name: str, specs: Sequence[InputSpec], context: InputContext) -> Input:
    """One object for all the inputs of one kind in a pipeline.

    Raises: NotFound, InvalidState as every `build_…` here.
    """
    return cast(Input, _module("input", name).build(specs, context))


def build_step(role: Literal["tap", "transform"], name: str, context: Context) -> Step:
    return cast(Step, _module(role, name).build(context))


def build_output(name: str, context: Context) -> Output:
    return cast(Output, _module("output", name).build(context))


def build_checks(name: str, context: CheckContext) -> Checks:
    """The checks that the output `name` offers beside the universal ones."""
    return cast(Checks, _module("checks", name).build(context))


def require_there(kind: Kind, name: str) -> None:
    """Passes when this version has the module of a role; imports nothing.

    Raises: NotFound, InvalidState.
    """
    _require(kind, name)


def _module(kind: Kind, name: str) -> ModuleType:
    return import_module(f"{_require(kind, name)}.{kind}")


def _require(kind: Kind, name: str) -> str:
    """The package that has a role's module.

    Raises: NotFound, when no manifest declares it; InvalidState, when it is not built yet."""
    found = _found().get(name)
    if found is None or not getattr(found[0], kind):
        word = "output with checks" if kind == "checks" else kind
        known = sorted(n for n, (made, _) in _found().items() if getattr(made, kind))
        raise NotFound(f"no {word} is called {name!r}", hint=f"there are: {', '.join(known)}")
    if not is_built(kind, name):
        subject = (
            f"the checks of output {name!r} are" if kind == "checks" else f"the {kind} {name!r} is"
        )
        raise InvalidState(
            f"{subject} not built yet", hint="this version of Pipo knows the name and cannot run it"
        )
    return found[1]


@cache
def _found() -> Mapping[str, tuple[Manifest, str]]:
    """Name → manifest and the package that holds it."""
    home = import_module(HOME)
    packages = [f"{HOME}.{m.name}" for m in pkgutil.iter_modules(home.__path__) if m.ispkg]
    found = {name: (made, package) for package in packages for name, made in _load(package)}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        for name, made in _load(entry.value):
            if name in found:
                raise ConnectorError(
                    f"two connectors are called {name!r}: {found[name][1]} and {entry.value}",
                    hint="uninstall the package that brings the second one",
                )
            found[name] = (made, entry.value)
    return found


def _load(package: str) -> list[tuple[str, Manifest]]:
    try:
        made: Any = import_module(f"{package}.manifest").MANIFEST
    except Exception as error:
        raise ConnectorError(
            f"the connector {package!r} does not load: {error}",
            hint="its package must hold a manifest.py with a MANIFEST",
        ) from error
    return [(made.name, made)]
