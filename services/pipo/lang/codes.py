"""Every diagnostic of `pipo check`, in one table: code, severity, title, advice.

The rules name their codes from here and the docs table is generated from it.

Source: facts §7; decisions 3 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pipo.errors import Finding
from pipo.lang.document import Place

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Code:
    """One diagnostic; `title` says when it fires, `advice` what to do about it."""

    code: str
    severity: Severity
    title: str
    advice: str


_ALL: Final = (
    Code("P001", "error", "The file is not well-formed YAML.", "Mend the spot; each key stands once, indentation is blanks, one document per file."),
    Code("P002", "error", "A key is unknown or missing, or a value is not what the key takes.", "Write what the message asks for; `pipo schema` prints every key and what it takes."),
    Code("P010", "error", "`from` names no input and no node.", "Name an input, a node, or `route.branch`."),
    Code("P011", "error", "`from` names a branch of something that has no such branch.", "Name a branch that the route has."),
    Code("P012", "error", "A function is used that no module defines.", "Set `fn:` to a Python file that defines it."),
    Code("P013", "error", "A secret is used that `secrets` does not declare.", "Declare it under `secrets`."),
    Code("P014", "error", "A file that the pipeline names is missing.", "Paths are relative to the pipeline's file."),
    Code("P015", "error", "A node has a reserved name.", "Call it anything but `input` and `output`."),
    Code("P016", "error", "`from` names a route without a branch.", "Name one of its branches: `route.branch`."),
    Code("P017", "error", "`else` is not the last branch.", "Move it to the end: the branches behind it can never be taken."),
    Code("P020", "error", "No packet can ever get here from an input.", "Connect it with `from`, or remove it."),
    Code("P021", "error", "Packets that get here never reach the output.", "Name it in a later step's `from`, or remove it."),
    Code("P022", "error", "The graph runs in a circle.", "To send packets back, use `loop.back_to`."),
    Code("P023", "error", "`back_to` names a node that is not upstream.", "Name the node itself, or one that its packets have passed."),
    Code("P024", "error", "`back_to` names no node.", "Name a node; an input is none."),
    Code("P025", "warning", "Nobody takes the packets of a route's branch.", "They end as `filtered`; connect the branch if that is not meant."),
    Code("P026", "warning", "A fan-out writes or looks up all its copies under one key.", "Use `meta.key`, or add `meta.branch`."),
    Code("P030", "error", "A tap, transform or agent of this name does not exist.", "Take one that the hint lists, or `fn.<name>`."),
    Code("P031", "error", "The delivery check does not suit the output.", "Take one that the hint lists."),
    Code("P032", "error", "The output does not write in batches.", "Remove `batch`; packets that are ready together are grouped anyway."),
    Code("P033", "error", "This `then` is not allowed here.", "Take one that the hint lists."),
    Code("P034", "error", "Packets or stalls are handed to an agent, but agents have no control.", "Set `agent.control: true`."),
    Code("P035", "error", "`respond` is set where there is no HTTP answer.", "Only inputs with `via: http` answer; remove it."),
    Code("P036", "error", "A node is of no kind, or of several.", "Give it exactly one of `tap`, `transform`, `filter`, `route`, `agent`."),
    Code("P037", "error", "`columns` leaves out the key column.", "Add the key column, or set `key` to one of the columns."),
    Code("P038", "error", "A schedule has both or neither of `cron` and `every`, or one that cannot be read.", "Give one of them: five fields in UTC (or `timezone`), or a duration."),
    Code("P039", "warning", "Two pipelines listen on one port.", "Give each its own; they cannot run at the same time."),
    Code("P040", "error", "An expression or template does not parse.", "The place inside the text is where reading stopped."),
    Code("P041", "error", "A variable does not exist here, or never holds what is asked of it.", "Take one that the hint lists."),
    Code("P050", "warning", "A secret seems to be written in the file.", "Declare it under `secrets` and write `${secrets.<name>}`."),
    Code("P051", "error", "A secret is used outside `with`.", "Expressions and messages never see secrets; hand the value to a connector, in its `with`."),
    Code("P052", "error", "Code from a template that nobody trusted, or that was edited since.", "Read it, then run `pipo trust`."),
    Code("P053", "warning", "Model calls have no budget.", "Set `agent_budget`."),
    Code("P054", "error", "A schema file is not a JSON Schema.", "It must be JSON: an object or a boolean that is a valid JSON Schema."),
    Code("P055", "error", "`agent.verify` is not `last N`.", "Write `last 25`, with a number from 1 to 1000."),
    Code("P056", "warning", "Two pipelines poll one Telegram bot.", "A bot has one reader: the second one to start is refused."),
    Code("P057", "error", "A Telegram message has no chat to go to.", "Set `chat_id`: these packets did not all come from Telegram."),
    Code("P058", "warning", "A command has blanks in it, and no shell reads it.", "Put the arguments into `args`, one each."),
    Code("P059", "error", "The functions' module does not import.", "Mend the line of the module that the message shows."),
    Code("P060", "error", "The pipeline has no input, or too many.", "Give exactly one of `input` and `inputs`, with at most 16 entries."),
    Code("P061", "error", "An input's name is taken.", "Inputs and nodes share one set of names; `output` is nobody's."),
    Code("P062", "error", "Two inputs of this file want the same route, port or bot.", "Give each its own."),
    Code("P063", "error", "A chain leads a pipeline to itself, or one sender to two inputs.", "Name another pipeline, or name the sender once."),
    Code("P064", "warning", "The ends of a chain do not agree.", "Sender and receiver must name each other, and chains must not run in a circle."),
    Code("P065", "warning", "`key` without `columns` is not a business key.", "The key column gets the packet's key; set `columns` to fill it from data."),
    Code("P066", "warning", "`on_fail` does not retry.", "`within` decides how long the check looks; only `then` and `message` act here."),
)  # fmt: skip

TEXT_LIMIT: Final = 1000
"""The longest message or hint of a finding, in characters."""

CODES: Final = {code.code: code for code in _ALL}


def finding(code: str, place: Place, message: str, hint: str = "", path: str = "") -> Finding:
    """A finding of a code that stands in the table; names of any length make no endless line."""
    known = CODES[code]
    return Finding(
        code,
        known.severity,
        _shortened(message),
        _shortened(hint or known.advice),
        place.line,
        place.col,
        path,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"
