"""The graph: P010, P011, P016, P017, P020 to P026."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from pipo.lang.document import Scalar, texts
from pipo.lang.draft import Block, Draft, NodeBlock, literal_of, map_of, text_of
from pipo.lang.graph import OUTPUT, Edge, Graph
from pipo.lang.rules.texts import reads
from pipo.lang.suggest import one_of

_SHOWN: Final = 9
"""How many steps of a circle a message names."""


@dataclass(slots=True)
class Wiring:
    """Every `from` of a file; `loose` holds the steps with one that leads nowhere.

    `doubtful` holds the routes that such an entry may have meant.
    """

    edges: list[Edge] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)


def sources(draft: Draft) -> Wiring:
    """P010, P011, P016: what every `from` means; that of a block with a P002 is only taken in."""
    wiring = Wiring()
    inputs = [block.name for block in draft.inputs]
    known = [*inputs, *_outlets(draft)]
    for target, block in _steps(draft):
        found = block.sources
        if not found:
            wiring.loose.add(target)
        for entry in found:
            name, _, branch = entry.value.partition(".")
            if "." in branch or (name not in inputs and name not in draft.nodes):
                if block.sound:
                    _unknown(draft, entry, known)
                wiring.loose.add(target)
                wiring.doubtful.add(name)
                continue
            wiring.edges.append(Edge(name, branch, target))
            node = None if name in inputs else draft.nodes[name]
            misfit = _misfit(entry, node)
            if misfit:
                wiring.doubtful.add(name)
            if misfit and block.sound:
                draft.report(misfit.code, entry, misfit.message, misfit.hint)
    return wiring


def _steps(draft: Draft) -> Iterator[tuple[str, Block]]:
    yield from draft.nodes.items()
    if draft.output:
        yield OUTPUT, draft.output


def _outlets(draft: Draft) -> Iterator[str]:
    """What a `from` can name among the nodes."""
    for node in draft.nodes.values():
        branches = [f"{node.name}.{branch}" for branch in node.branches.entries]
        yield from branches or [node.name]


def _unknown(draft: Draft, entry: Scalar, known: list[str]) -> None:
    shown = f"`{entry.value[:60]}`"
    several = entry.value.count(".") > 1
    problem = f"{shown} has more than one point" if several else f"{shown} is no input and no node"
    draft.report("P010", entry, problem, one_of(entry.value, known))


class Misfit(NamedTuple):
    """What is wrong with an entry that names a step."""

    code: str
    message: str
    hint: str


def _misfit(entry: Scalar, node: NodeBlock | None) -> Misfit | None:
    """An entry names a branch if and only if its step has any; `node` is None for an input."""
    name, dot, branch = entry.value.partition(".")
    branches = list(node.branches.entries) if node else []
    if dot and branch not in branches:
        hint = one_of(branch, branches, "its branches are")
        if not branches:
            hint = f"`{name}` is no route; name it alone"
        return Misfit("P011", f"`{name}` has no branch `{branch[:60]}`", hint)
    if node and node.kind == "route" and branches and not dot:
        hint = one_of("", [f"{name}.{each}" for each in branches], "there are")
        return Misfit("P016", f"`{name}` is a route: name one of its branches", hint)
    return None


def branches(draft: Draft) -> None:
    """P017."""
    for node in draft.sound_nodes:
        entries = list(node.branches.items())
        for key, value in entries[:-1]:
            if isinstance(value, Scalar) and value.value == "else":
                draft.report("P017", key, f"`else` of `{node.name}` is not the last branch")


def reach(draft: Draft, wiring: Wiring) -> None:
    """P020, P021, P022: whether packets get everywhere, and on."""
    assert draft.output is not None
    graph = Graph(wiring.edges)
    starts = [block.name for block in draft.inputs]
    reached = graph.after([*starts, *wiring.loose])
    for name, block in _steps(draft):
        if name not in reached and block.sound:
            what = "the output" if name == OUTPUT else f"the node `{name}`"
            message = f"no packet from an input reaches {what}"
            draft.report("P020", block.map, message, place=block.place)
    _dead_ends(draft, graph, wiring.loose)
    for circle in graph.circles(draft.nodes):
        names = " → ".join(graph.circuit(circle)[:_SHOWN])
        node = next((draft.nodes[name] for name in circle if draft.nodes[name].sound), None)
        if node:
            message = f"the nodes feed each other: {names}"
            draft.report("P022", node.map, message, place=node.place)


def _dead_ends(draft: Draft, graph: Graph, loose: set[str]) -> None:
    leading = graph.before([OUTPUT])
    if leading & loose:
        return  # What such a step takes its packets from may be any of the others.
    ends: list[tuple[str, Block]] = [("node", block) for block in draft.nodes.values()]
    if draft.root.key("inputs"):
        ends += [("input", block) for block in draft.inputs]
    for what, block in ends:
        if block.name not in leading and block.sound:
            message = f"packets of the {what} `{block.name}` never reach the output"
            draft.report("P021", block.map, message, place=block.place)


def unused_branches(draft: Draft, wiring: Wiring) -> None:
    """P025."""
    graph = Graph(wiring.edges)
    for node in draft.sound_nodes:
        if node.name in wiring.doubtful:
            continue
        for key, _ in node.branches.items():
            if not graph.takers(node.name, key.text):
                message = f"nobody takes packets from `{node.name}.{key.text}`"
                draft.report("P025", key, message)


def loops(draft: Draft, wiring: Wiring) -> None:
    """P023, P024."""
    upstream = Graph(wiring.edges).ancestry
    inputs = {block.name for block in draft.inputs}
    for node in draft.sound_nodes:
        loop = map_of(node.map, "loop")
        target = text_of(loop, "back_to") if loop else None
        if target is None:
            continue
        if target.value not in draft.nodes:
            problem = "is an input" if target.value in inputs else "is no node"
            message = f"`{target.value[:60]}` {problem}: packets cannot go back to it"
            draft.report("P024", target, message, one_of(target.value, draft.nodes))
            continue
        name = node.name
        if not upstream.has(name, target.value) and not upstream.has_any(name, wiring.loose):
            message = f"`{target.value}` is not upstream of `{name}`"
            known = (each for each in draft.nodes if upstream.has(name, each))
            draft.report(
                "P023", target, message, one_of(target.value, islice(known, 100), "upstream are")
            )


def copies(draft: Draft, wiring: Wiring) -> None:
    """P026: a fan-out whose copies share a key."""
    output = draft.sound_output
    if output is None or not _fans_out(draft, Graph(wiring.edges)):
        return
    for value in _keys_of_copies(draft, output):
        if reads(value, "meta", "packet_id") and not reads(value, "meta", "branch"):
            draft.report("P026", value, "all copies of a packet have this one value here")


def _fans_out(draft: Draft, graph: Graph) -> bool:
    leading = graph.before([OUTPUT])
    outlets = [(block.name, "") for block in draft.inputs]
    for node in draft.nodes.values():
        outlets += [(node.name, branch) for branch in node.branches.entries] or [(node.name, "")]
    return any(
        sum(taker in leading for taker in graph.takers(step, branch)) > 1
        for step, branch in outlets
    )


def _keys_of_copies(draft: Draft, output: Block) -> Iterator[Scalar]:
    to = output.text("to")
    settings = output.settings
    if to and to.value == "sqlite" and (columns := map_of(settings, "columns")):
        key = literal_of(settings, "key")
        value = text_of(columns, key.value if key else "packet_id")
        if value:
            yield value
    if to and to.value == "http" and (headers := map_of(settings, "headers")):
        for key_, header in headers.items():
            if key_.text.lower() == "idempotency-key" and isinstance(header, Scalar):
                yield header
    delivered = draft.block("delivered")
    if delivered and (looked_for := delivered.get("with")):
        yield from (scalar for _, scalar in texts(looked_for))
