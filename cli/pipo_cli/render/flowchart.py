"""`pipo graph`: a pipeline as a Mermaid flowchart or a Graphviz graph.

What the author wrote stands in quoted texts only. Mermaid's node ids are our own: an id
such as `end` would be a keyword there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pipo.lang.graph import Edge
from pipo.lang.model import Loop, Pipeline
from pipo.lang.steps import OUTPUT, Step, Steps
from pipo_cli.render.lanes import check_words, detail
from pipo_cli.render.tables import one_line

# Kind → how Mermaid brackets its text, and Graphviz's shape.
_BRACKETS: Final = {"input": ("([", "])"), "route": ("{", "}"), "output": ("[(", ")]")}
_SHAPES: Final = {"input": "oval", "route": "diamond", "output": "cylinder"}
_FILTERED: Final = "ends as filtered"
# What Mermaid would read as the end of a text, an entity, markup, markdown or a directive.
_MERMAID_ESCAPES: Final = {ord(char): f"#{ord(char)};" for char in '"#&<>`*%\\'}
_DOT_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def mermaid(pipeline: Pipeline) -> list[str]:
    """The lines of a Mermaid flowchart."""
    steps = Steps.of(pipeline)
    ids = {step.id: f"s{index}" for index, step in enumerate(steps.ordered)}
    drawn = [_mermaid_step(ids[step.id], step) for step in steps.ordered]
    drawn.append(f"delivered{{{{{_mermaid_text('delivered', check_words(pipeline.delivered))}}}}}")
    for number, edge in enumerate(steps.edges()):
        drawn += _mermaid_edge(edge, ids, number)
    drawn.append(f"{ids[OUTPUT]} --> delivered")
    for step, loop in _loops(steps):
        label = _mermaid_text(_loop_words(loop))
        drawn.append(f"{ids[step.id]} -. {label} .-> {ids[loop.back_to]}")
    return ["flowchart TD", *(f"  {line}" for line in drawn)]


def dot(pipeline: Pipeline) -> list[str]:
    """The lines of a graph in Graphviz's language."""
    steps = Steps.of(pipeline)
    drawn = ['node [shape="box", style="rounded"]']
    drawn += [_dot_step(step) for step in steps.ordered]
    checked = _dot_text("delivered", check_words(pipeline.delivered))
    # A blank stands in no node's id.
    drawn.append(f'"delivered check" [shape="hexagon", style="", label={checked}]')
    for number, edge in enumerate(steps.edges()):
        drawn += _dot_edge(edge, number)
    drawn.append(f'{_dot_text(OUTPUT)} -> "delivered check"')
    for step, loop in _loops(steps):
        label = _dot_text(_loop_words(loop))
        ends = f"{_dot_text(step.id)} -> {_dot_text(loop.back_to)}"
        drawn.append(f'{ends} [style="dashed", constraint="false", label={label}]')
    return [f"digraph {_dot_text(pipeline.name)} {{", *(f"  {line};" for line in drawn), "}"]


def _loops(steps: Steps) -> Iterator[tuple[Step, Loop]]:
    return ((step, step.loop) for step in steps.ordered if step.loop)


def _loop_words(loop: Loop) -> str:
    return f"at most {loop.max} times"


def _about(step: Step) -> str:
    said = detail(step)
    return f"{step.kind}: {said}" if said else step.kind


def _mermaid_step(name: str, step: Step) -> str:
    before, behind = _BRACKETS.get(step.kind, ("[", "]"))
    return f"{name}{before}{_mermaid_text(step.id, _about(step))}{behind}"


def _mermaid_edge(edge: Edge, ids: Mapping[str, str], number: int) -> Iterator[str]:
    label = f"|{_mermaid_text(edge.branch)}|" if edge.branch else ""
    if edge.target:
        yield f"{ids[edge.source]} -->{label} {ids[edge.target]}"
        return
    yield f"nobody{number}({_mermaid_text(_FILTERED)})"
    yield f"{ids[edge.source]} -.->{label} nobody{number}"


def _mermaid_text(*texts: str) -> str:
    return '"' + "<br/>".join(one_line(t).translate(_MERMAID_ESCAPES) for t in texts) + '"'


def _dot_step(step: Step) -> str:
    shape = _SHAPES.get(step.kind)
    settings = f'shape="{shape}", style="", ' if shape else ""
    return f"{_dot_text(step.id)} [{settings}label={_dot_text(step.id, _about(step))}]"


def _dot_edge(edge: Edge, number: int) -> Iterator[str]:
    settings = [f"label={_dot_text(edge.branch)}"] if edge.branch else []
    target = edge.target
    if not target:
        target = f"nobody {number}"
        yield f'{_dot_text(target)} [shape="plaintext", style="", label={_dot_text(_FILTERED)}]'
        settings.append('style="dashed"')
    shown = f" [{', '.join(settings)}]" if settings else ""
    yield f"{_dot_text(edge.source)} -> {_dot_text(target)}{shown}"


def _dot_text(*texts: str) -> str:
    return '"' + "\\n".join(one_line(text).translate(_DOT_ESCAPES) for text in texts) + '"'
