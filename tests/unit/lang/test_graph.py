from __future__ import annotations

from pipo.lang.graph import OUTPUT, Edge, Graph


def graph(*edges: str) -> Graph:
    """Edges such as `a>b`, `r.x>b`."""
    made = []
    for edge in edges:
        source, target = edge.split(">")
        name, _, branch = source.partition(".")
        made.append(Edge(name, branch, OUTPUT if target == "out" else target))
    return Graph(made)


def test_reach() -> None:
    steps = graph("in>a", "a>b", "b>out", "c>d", "d>c")
    assert steps.after(["in"]) == {"in", "a", "b", OUTPUT}
    assert steps.before([OUTPUT]) == {"in", "a", "b", OUTPUT}
    assert steps.after([]) == set()
    assert steps.before(["unknown"]) == {"unknown"}


def test_takers_of_a_branch() -> None:
    steps = graph("r.x>a", "r.x>b", "r.y>b", "r.x>b")
    assert steps.takers("r", "x") == ["a", "b"]
    assert steps.takers("r", "y") == ["b"]
    assert steps.takers("a") == []
    mixed = graph("r>a", "r.x>b", "r>c", "r.y>d")
    assert mixed.takers("r", "x") == ["a", "b", "c"]
    assert mixed.takers("r") == ["a", "c"]


def test_circles() -> None:
    steps = graph("in>a", "a>b", "b>c", "c>a", "c>d", "d>d", "e>out", "f>g", "g>f")
    assert steps.circles("abcdefg") == [["a", "b", "c"], ["d"], ["f", "g"]]
    assert graph("in>a", "a>out").circles(["a"]) == []


def test_ancestry() -> None:
    steps = graph("in>a", "a>b", "b>a", "b>c", "x>c", "c>out", "y>y")
    upstream = steps.ancestry
    for step in ("in", "a", "b", "c", "x", "y", OUTPUT):
        before = steps.before([step])
        assert {s for s in ("in", *"abcxy", OUTPUT) if upstream.has(step, s)} == before
    assert upstream.has("alone", "alone")
    assert not upstream.has("alone", "a")
    assert upstream.has_any("c", ["y", "x"])


def test_a_long_chain_is_no_trouble() -> None:
    edges = [Edge(f"n{i}", "", f"n{i + 1}") for i in range(5000)]
    steps = Graph([*edges, Edge("n5000", "", "n0")])
    names = [f"n{i}" for i in range(5001)]
    assert steps.circles(names) == [names]
