"""What single connectors ask beyond their schemas.

P037, P065 (sqlite); P038 (schedule); P053, P055 (agents); P057, P062 (telegram,
http); P058 (exec); P063 (chains of one file).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from pipo.lang.cron import BadCron, Cron
from pipo.lang.document import Map, Scalar
from pipo.lang.draft import Block, Draft, items_of, literal_of, map_of, text_of, value_of
from pipo.lang.graph import OUTPUT, Graph
from pipo.lang.rules.flow import Wiring
from pipo.lang.templates import is_template

_VERIFY = re.compile(r"\s*last\s+([1-9][0-9]{0,3})\s*")
_VERIFY_LIMIT = 1000
_SECRET = re.compile(r"\$\{\s*secrets\.([A-Za-z_$][A-Za-z0-9_$]*)\s*\}")
DEFAULT_BOT = "default"


def via(draft: Draft, name: str) -> Iterator[Block]:
    """The sound inputs of one connector."""
    for block in draft.sound_inputs:
        text = block.text("via")
        if text and text.value == name:
            yield block


def sends_to(draft: Draft, name: str) -> Block | None:
    """The sound output, if it is of one connector."""
    output = draft.sound_output
    to = output.text("to") if output else None
    return output if to and to.value == name else None


# ── sqlite ──


def sqlite(draft: Draft) -> None:
    """P037, P065."""
    output = sends_to(draft, "sqlite")
    if output is None:
        return
    key = text_of(output.settings, "key")
    name = key.value if key else "packet_id"
    columns = map_of(output.settings, "columns")
    if columns and name not in columns.entries:
        message = f"`columns` leaves out the key column `{name}`"
        draft.report("P037", columns, message)
    elif columns is None and key and name != "packet_id":
        message = f"without `columns`, the column `{name}` gets the packet's key, not data's field"
        draft.report("P065", key, message)


# ── schedule ──


def schedules(draft: Draft) -> None:
    """P038."""
    for block in via(draft, "schedule"):
        settings = block.settings
        cron, every = text_of(settings, "cron"), text_of(settings, "every")
        if (cron is None) == (every is None):
            problem = "both `cron` and `every` are set" if cron else "`cron` or `every` is missing"
            draft.report("P038", settings, problem)
        else:
            _cron(draft, cron, text_of(settings, "timezone"))


def _cron(draft: Draft, cron: Scalar | None, zone: Scalar | None) -> None:
    if zone:
        _read(draft, zone, "timezone", lambda: Cron("* * * * *", zone.value))
        if cron is None:
            draft.report(
                "P038", zone, "`timezone` belongs to `cron`; `every` counts from the start"
            )
    if cron:
        _read(draft, cron, "cron", lambda: Cron(cron.value))


def _read(draft: Draft, text: Scalar, key: str, reading: Callable[[], Cron]) -> None:
    if is_template(text.value):
        draft.report("P038", text, f"`{key}` takes no template")
        return
    try:
        reading()
    except BadCron as error:
        draft.report("P038", text, str(error), error.hint)


# ── http and telegram ──


def doors(draft: Draft) -> None:
    """P062: inputs of one file that want the same route, different ports, or one bot."""
    routes: dict[tuple[str, str], str] = {}
    port: int | None = None
    for block in via(draft, "http"):
        path, method = text_of(block.settings, "path"), text_of(block.settings, "method")
        route = (
            method.value if method else "POST",
            (path.value.rstrip("/") or "/") if path else "/",
        )
        first = routes.setdefault(route, block.name)
        if first != block.name:
            message = f"`{block.name}` and `{first}` both answer {route[0]} {route[1]}"
            draft.report("P062", block.map, message, place=block.place)
        listen = value_of(block.settings, "listen")
        if listen is not None and port not in (None, listen):
            message = f"`{block.name}` listens on {listen}, an input before on {port}"
            draft.report("P062", block.map, message, "one file has one port", place=block.place)
        port = port or listen
    bots: dict[str, str] = {}
    for block in via(draft, "telegram"):
        first = bots.setdefault(bot(draft, block.settings), block.name)
        if first != block.name:
            message = f"`{block.name}` and `{first}` read one Telegram bot"
            draft.report("P062", block.map, message, place=block.place)


def bot(draft: Draft, settings: Map) -> str:
    """What tells one bot from another: its token, a secret by where it comes from, or its name."""
    token = text_of(settings, "token")
    if token is None:
        name = text_of(settings, "bot")
        return f"bot {name.value if name else DEFAULT_BOT}"
    secrets = draft.block("secrets")

    def source(hole: re.Match[str]) -> str:
        reference = text_of(secrets, hole[1]) if secrets else None
        return reference.value if reference else hole[0]

    return f"token {_SECRET.sub(source, token.value)}"


def chats(draft: Draft, wiring: Wiring) -> None:
    """P057: messages without a chat whose packets may come from elsewhere."""
    senders: list[tuple[str, Block]] = [(n.name, n) for n in draft.uses("tap", "telegram")]
    if output := sends_to(draft, "telegram"):
        senders.append((OUTPUT, output))
    telegram = {block.name for block in via(draft, "telegram")}
    others = {block.name for block in draft.sound_inputs} - telegram
    graph = Graph(wiring.edges)
    for step, block in senders:
        origins = others & graph.before([step]) if block.settings.get("chat_id") is None else set()
        if origins:
            message = f"packets of `{sorted(origins)[0]}` come from no chat: `chat_id` is missing"
            draft.report("P057", block.map, message, place=block.place)


# ── exec and agents ──


def commands(draft: Draft) -> None:
    """P058."""
    for node in (*draft.uses("tap", "exec"), *draft.uses("transform", "exec")):
        command = literal_of(node.settings, "command")
        if command and re.search(r"\s", command.value):
            message = f"no program is called {command.value[:60]!r}: no shell reads a command"
            draft.report("P058", command, message)


def agents(draft: Draft) -> None:
    """P053, P055."""
    if draft.root.get("agent_budget") is None:
        for node in draft.uses("agent", "claude_api"):
            message = f"the model calls of `{node.name}` have no budget"
            draft.report("P053", node.map, message, place=node.place)
            break
    agent = draft.block("agent")
    verify = text_of(agent, "verify") if agent else None
    if verify:
        found = _VERIFY.fullmatch(verify.value)
        if found is None or int(found[1]) > _VERIFY_LIMIT:
            draft.report("P055", verify, f"{verify.value[:60]!r} is not `last N`")


# ── chains ──


def own_chain(draft: Draft) -> None:
    """P063."""
    output = sends_to(draft, "pipeline")
    receiver = literal_of(output.settings, "pipeline") if output else None
    if receiver and receiver.value == draft.name:
        draft.report("P063", receiver, "the pipeline hands its packets to itself")
    taken: dict[str, str] = {}
    for block in via(draft, "pipeline"):
        twice = False
        for sender in senders(block):
            if sender.value == draft.name:
                draft.report("P063", sender, "the pipeline takes packets from itself")
            twice = twice or taken.setdefault(sender.value, block.name) != block.name
        if twice:
            message = f"`{block.name}` takes packets of a sender that an input before takes"
            draft.report("P063", block.map, message, place=block.place)


def senders(block: Block) -> Iterable[Scalar]:
    """The names in a chain input's `from`."""
    items = items_of(block.settings, "from")
    return [i for i in items if isinstance(i, Scalar) and not is_template(str(i.value))]
