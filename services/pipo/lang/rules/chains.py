"""The files of one run against each other: P039, P056, P064."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipo.lang.document import Scalar
from pipo.lang.draft import Draft, literal_of
from pipo.lang.graph import Edge, Graph
from pipo.lang.rules.connectors import bot, senders, sends_to, via

Named = dict[str, list[Draft]]
"""The files of a run by their pipeline's name; several may have one, in different folders."""

_SHOWN: Final = 9
"""How many pipelines of a circle a message names."""


def ports(drafts: Sequence[Draft]) -> None:
    """P039."""
    taken: dict[int, Draft] = {}
    for draft in drafts:
        for block in via(draft, "http"):
            listen = block.settings.get("listen")
            if not isinstance(listen, Scalar):
                continue
            first = taken.setdefault(listen.value, draft)
            if first is not draft:
                message = f"`{first.name or first.file}` listens on {listen.value} too"
                draft.report("P039", listen, message)
                break


def bots(drafts: Sequence[Draft]) -> None:
    """P056."""
    taken: dict[str, Draft] = {}
    for draft in drafts:
        for block in via(draft, "telegram"):
            first = taken.setdefault(bot(draft, block.settings), draft)
            if first is not draft:
                message = f"`{first.name or first.file}` reads the same Telegram bot"
                draft.report("P056", block.map, message, place=block.place)


def chains(drafts: Sequence[Draft]) -> None:
    """P064."""
    named: Named = {}
    for draft in drafts:
        if draft.name:
            named.setdefault(draft.name, []).append(draft)
    for draft in drafts:
        if draft.name:
            _sender(draft, named)
            _receiver(draft, named)
    _circles(named)


def _circles(named: Named) -> None:
    drafts = [draft for several in named.values() for draft in several]
    links = [(draft, link) for draft in drafts if (link := _link(draft))]
    graph = Graph(Edge(d.name, "", link.value) for d, link in links if link.value != d.name)
    for circle in graph.circles(named):
        shown = " → ".join(graph.circuit(circle)[:_SHOWN])
        for draft, link in links:
            if draft.name in circle and link.value in circle:
                draft.report("P064", link, f"the chain runs in a circle: {shown}")


def _link(draft: Draft) -> Scalar | None:
    """The name that the output hands packets to."""
    output = sends_to(draft, "pipeline")
    return literal_of(output.settings, "pipeline") if output else None


def _listed(draft: Draft) -> list[Scalar]:
    return [sender for block in via(draft, "pipeline") for sender in senders(block)]


def _sender(draft: Draft, named: Named) -> None:
    link = _link(draft)
    if link is None or link.value == draft.name:
        return
    receivers = named.get(link.value, [])
    if receivers and not any(_may_take(receiver, draft.name) for receiver in receivers):
        message = f"`{link.value}` takes no packets from `{draft.name}`"
        hint = f"add `{draft.name}` to a `via: pipeline` input of {receivers[0].file}"
        draft.report("P064", link, message, hint)


def _may_take(receiver: Draft, sender: str) -> bool:
    """Whether a pipeline lists the sender, as far as its inputs can be read."""
    unread = not all(block.sound for block in receiver.inputs)
    return unread or sender in [listed.value for listed in _listed(receiver)]


def _receiver(draft: Draft, named: Named) -> None:
    for sender in _listed(draft):
        others = [] if sender.value == draft.name else named.get(sender.value, [])
        if others and not any(_may_hand_to(other, draft.name) for other in others):
            message = f"`{sender.value}` does not hand its packets to `{draft.name}`"
            draft.report("P064", sender, message, f"see the output of {others[0].file}")


def _may_hand_to(sender: Draft, receiver: str) -> bool:
    """Whether a pipeline's packets go to the receiver, as far as its output can be read."""
    link = _link(sender)
    if link is None:
        return sender.sound_output is None or sends_to(sender, "pipeline") is not None
    return bool(link.value == receiver)
