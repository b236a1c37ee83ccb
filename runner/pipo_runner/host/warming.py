"""What every pipeline needs, loaded once before the first fork.

Whatever is imported or cached here is shared by all pipeline processes; whatever is
not, each pays for itself (measured: 3 MB each for manifests, connectors and a first
parse). It may not start a thread, a loop, a channel or a server.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Sequence

MODULES = (
    "pipo_runner.pipeline.main",
    "pipo.rpc.server",
    "pipo.rpc.channels",
    "uvloop",
    "encodings.ascii",
)
# The roles that are cheap to import; one that drags in an HTTP client is not.
ROLES = (
    ("input", ("http", "push", "schedule")),
    ("tap", ("log",)),
    ("transform", ("map",)),
    ("output", ("file", "sqlite", "stdout")),
)
# Not run: parsing it fills the caches of the language.
SAMPLE = """\
pipo: 1
name: sample
input: {via: http, with: {path: /sample}, validate: [exists(data.email)]}
nodes:
  adults: {from: input, filter: "data.age >= 18"}
  clean: {from: adults, transform: map, with: {data: {email: "${lower(trim(data.email))}"}}}
output: {from: clean, to: sqlite, with: {path: ./sample.db, table: people, create: true}}
"""


def warm(modules: Sequence[str] = ()) -> None:
    """Loads `modules`, or when none are given what pipelines need; then keeps the
    collector away from all of it, since its marks would unshare the pages."""
    gc.disable()
    if modules:
        for module in modules:
            importlib.import_module(module)
    else:
        _warm_pipelines()
    gc.collect()
    gc.freeze()


def _warm_pipelines() -> None:
    for module in MODULES:
        importlib.import_module(module)
    from pipo.connectors import registry
    from pipo.connectors.contract import ConnectorError
    from pipo.lang.check import Source, parse

    try:
        manifests = registry.manifests()
    except ConnectorError:
        # The host's start says it, where somebody sees it.
        return
    for role, names in ROLES:
        for name in names:
            if registry.is_built(role, name):  # type: ignore[arg-type]
                importlib.import_module(f"pipo.connectors.{name}.{role}")
    parse(Source(text=SAMPLE, file="sample.pipo"), manifests)
