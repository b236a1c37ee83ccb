"""The files of one run against each other: P039, P056, P064."""

from __future__ import annotations

from collections.abc import Sequence

from pipo.lang.document import Scalar
from pipo.lang.draft import Draft, literal_of
from pipo.lang.graph import Edge, Graph
from pipo.lang.rules.connectors import bot, senders, sends_to, via


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
            first = taken.setdefault(bot(block.settings), draft)
            if first is not draft:
                message = f"`{first.name or first.file}` reads the same Telegram bot"
                draft.report("P056", block.map, message, place=block.place)


def chains(drafts: Sequence[Draft]) -> None:
    """P064."""
    named = {draft.name: draft for draft in drafts if draft.name}
    for draft in named.values():
        _sender(draft, named)
        _receiver(draft, named)
    links = {name: link.value for name, d in named.items() if (link := _receiver_of(d))}
    graph = Graph(Edge(a, "", b) for a, b in links.items() if a != b and b in named)
    for circle in graph.circles(named):
        shown = " → ".join([*circle[:8], circle[0]])
        for name in circle:
            link = _receiver_of(named[name])
            assert link is not None
            named[name].report("P064", link, f"the chain runs in a circle: {shown}")


def _receiver_of(draft: Draft) -> Scalar | None:
    """The name that the output hands packets to."""
    output = sends_to(draft, "pipeline")
    return literal_of(output.settings, "pipeline") if output else None


def _listed(draft: Draft) -> list[Scalar]:
    return [sender for block in via(draft, "pipeline") for sender in senders(block)]


def _sender(draft: Draft, named: dict[str, Draft]) -> None:
    link = _receiver_of(draft)
    receiver = named.get(link.value) if link else None
    if link is None or receiver is None or receiver is draft:
        return
    is_judged = all(block.sound for block in receiver.inputs)
    if is_judged and draft.name not in [sender.value for sender in _listed(receiver)]:
        message = f"`{receiver.name}` takes no packets from `{draft.name}`"
        hint = f"add `{draft.name}` to a `via: pipeline` input of {receiver.file}"
        draft.report("P064", link, message, hint)


def _receiver(draft: Draft, named: dict[str, Draft]) -> None:
    for sender in _listed(draft):
        other = named.get(sender.value)
        if other is None or other is draft or other.sound_output is None:
            continue
        link = _receiver_of(other)
        templated = link is None and sends_to(other, "pipeline") is not None
        if not templated and (link is None or link.value != draft.name):
            message = f"`{sender.value}` does not hand its packets to `{draft.name}`"
            draft.report("P064", sender, message, f"see the output of {other.file}")
