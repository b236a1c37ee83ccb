"""Any pipeline that passes its check, for tests of what lists or draws it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from pipo.lang.model import Pipeline
from tests.unit.lang.reading import model

# Words that a picture's language may take for its own.
IDS = ("end", "graph", "subgraph", "class", "default", "style", "o1", "x-1", "_", "node", "click")
ODD = (
    '"',
    "a b",
    "[x]",
    "|",
    "#",
    "%%{init}%%",
    "`*b*`",
    "<br/>",
    "\\",
    "&amp;",
    "漢字",
    "é",
    "else",
)
branch_names = st.sampled_from(ODD) | st.text("abz \"'[]{}()|#;:<>\\&-é", min_size=1, max_size=8)


@st.composite
def pipelines(draw: st.DrawFn, nodes_max: int = 10) -> Pipeline:
    """Every step is reached and leads on; some branches nobody takes."""
    inputs = [f"in{n}" for n in range(draw(st.integers(1, 3)))]
    names = draw(st.lists(st.sampled_from(IDS), unique=True, max_size=nodes_max))
    outlets: dict[str, list[str]] = {name: [name] for name in inputs}
    nodes: dict[str, Any] = {}
    for name in names:
        nodes[name] = {"from": _some(draw, outlets), **draw(_kinds)}
        branches = list(nodes[name].get("route", ()))
        outlets[name] = [f"{name}.{branch}" for branch in branches] or [name]
        if draw(st.booleans()) and not branches:
            nodes[name]["loop"] = {"back_to": name, "until": "data.ok", "max": 3}
    taken = {source.partition(".")[0] for node in nodes.values() for source in node["from"]}
    ends = [each[0] for name, each in outlets.items() if name not in taken]
    file = {
        "pipo": 1,
        "name": "drawn",
        "inputs": {name: {"via": "push"} for name in inputs},
        "nodes": nodes,
        "output": {"from": ends, "to": "stdout"},
    }
    return model(json.dumps(file))


def _some(draw: st.DrawFn, outlets: dict[str, list[str]]) -> list[str]:
    """One to three of what earlier steps give out."""
    known = [outlet for each in outlets.values() for outlet in each]
    return draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))


_routes = st.lists(branch_names, min_size=1, max_size=3, unique=True).map(
    lambda names: {"route": dict.fromkeys(names, "data.x")}
)
_kinds = st.one_of(
    st.just({"tap": "log"}),
    st.sampled_from(ODD).map(lambda label: {"tap": "log", "label": label}),
    st.just({"filter": 'data.name == "<\\"&\\">" || data.x > 3'}),
    _routes,
    _routes,
)
