"""The settings of agent nodes: those of the Messages API, and those of the command-line agents."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import Property, boolean, closed, duration, literal_path, path, text


def answer(timeout: str) -> dict[str, Property]:
    """What every agent node takes."""
    return {
        "prompt": text("What the agent is asked."),
        "schema": literal_path("A JSON Schema file; the answer must match it."),
        "timeout": duration("How long one answer may take.", default=timeout),
    }


def cli_agent(name: str, program: str) -> Manifest:
    """The manifest of an agent that is a program on this machine."""
    return Manifest(
        name=name,
        summary=f"Asks {program}, installed on this machine.",
        agent=Role(
            closed(
                required=("prompt", "schema"),
                model=text("The model; the program's own default unless set."),
                cwd=path("The folder it works in; a fresh empty one unless set."),
                allow_tools=boolean("Whether it may use its tools.", default=False),
                **answer("5m"),
            ),
            effect="spend",
        ),
    )
