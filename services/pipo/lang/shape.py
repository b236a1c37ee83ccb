"""The shape of a file: P002, and the blocks that later rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipo.lang.document import Items, Map, Node, Scalar
from pipo.lang.draft import Block, Draft, NodeBlock, map_of, text_of
from pipo.lang.rules.policies import UNIVERSAL_CHECKS, supported_checks
from pipo.lang.schema import FILE
from pipo.lang.suggest import one_of
from pipo.lang.validation import Fault, faults, literals

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest

NO_SETTINGS: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {},
}
"""The `with` of a check that every output takes."""

Made = TypeVar("Made", bound=Block)


def draft_of(file: str, root: Node, manifests: Mapping[str, Manifest], home: Path | None) -> Draft:
    """The file's blocks, each checked against its schema."""
    draft = Draft(file, root if isinstance(root, Map) else Map(root.place), manifests, home)
    if not isinstance(root, Map):
        empty = isinstance(root, Scalar) and root.value is None
        message = (
            "the file is empty" if empty else f"the file must be a map of keys, found {_kind(root)}"
        )
        draft.report("P002", draft.root, message, "start with `pipo: 1` and `name:`")
        draft.broken.add("file")
        return draft
    _collect(draft)
    for fault in faults(FILE, root, ""):
        _report(draft, fault)
        _break(draft, fault.path)
    for block in draft.inputs:
        _connector(draft, block, "via", "input")
    for node in draft.nodes.values():
        role = draft.role(node.kind, node.uses.value) if node.kind and node.uses else None
        if node.sound and role:
            _settings(draft, node, role.schema)
    if draft.output:
        _connector(draft, draft.output, "to", "output")
    _delivered(draft)
    return draft


def _collect(draft: Draft) -> None:
    root = draft.root
    single, several = map_of(root, "input"), map_of(root, "inputs")
    if single:
        draft.inputs.append(Block("input", root.key("input"), single))
    for key, value in several.items() if several else ():
        draft.inputs.append(_block(Block, key.text, key, value))
    nodes = map_of(root, "nodes")
    for key, value in nodes.items() if nodes else ():
        draft.nodes[key.text] = _block(NodeBlock, key.text, key, value)
    output = map_of(root, "output")
    if output:
        draft.output = Block("output", root.key("output"), output)


def _block(kind: type[Made], name: str, key: Any, value: Node) -> Made:
    """A named block; one that is no map keeps its name."""
    return kind(name, key, value if isinstance(value, Map) else Map(value.place))


def _break(draft: Draft, path: tuple[str | int, ...]) -> None:
    """Marks the block that a fault lies in."""
    match path:
        case ("nodes", str(name), *_):
            if name in draft.nodes:
                draft.nodes[name].sound = False
        case ("inputs", str(name), *_):
            for block in draft.inputs:
                block.sound = block.sound and block.name != name
        case ("input", *_):
            draft.broken.add("input") if not draft.inputs else None
            for block in draft.inputs:
                block.sound = False
        case ("output", *_):
            draft.broken.add("output")
            if draft.output:
                draft.output.sound = False
        case (str(name), *_):
            draft.broken.add(name)


def _report(draft: Draft, fault: Fault) -> None:
    draft.report("P002", fault.at, fault.message, fault.hint)


def _connector(draft: Draft, block: Block, key: str, role: str) -> None:
    """The connector of an input or the output: known, and with the settings that it takes."""
    name = block.text(key)
    if name is None:
        return
    found_ = draft.role(role, name.value)
    if found_ is None:
        message = f"there is no {role} `{name.value[:60]}`"
        draft.report("P002", name, message, one_of(name.value, draft.names(role)))
        block.sound = False
    elif map_of(block.map, "with") or block.map.get("with") is None:
        _settings(draft, block, found_.schema)


def _settings(draft: Draft, block: Block, schema: Mapping[str, Any]) -> None:
    draft.closed.update(id(scalar) for scalar in literals(schema, block.settings))
    for fault in faults(schema, block.settings, "`with`"):
        _report(draft, fault)
        block.sound = False


def _delivered(draft: Draft) -> None:
    """The check's name, and its settings where it suits the output."""
    block = draft.block("delivered")
    if block is None:
        return
    check = text_of(block, "check")
    name = check.value if check else "ack"
    known = {c: None for m in draft.manifests.values() for c in m.checks} | dict.fromkeys(
        UNIVERSAL_CHECKS
    )
    if check and name not in known:
        to = draft.output.text("to") if draft.output else None
        role = draft.output_role(to.value) if to else None
        options = supported_checks(role.checks) if role else known
        draft.report(
            "P002", check, f"there is no check `{name[:60]}`", one_of(name, options, "supported")
        )
        draft.broken.add("delivered")
        return
    schema = _check_schema(draft, name)
    settings = map_of(block, "with") or Map(block.place)
    if schema is not None:
        draft.closed.update(id(scalar) for scalar in literals(schema, settings))
        for fault in faults(schema, settings, "`delivered.with`"):
            _report(draft, fault)
            draft.broken.add("delivered")


def _check_schema(draft: Draft, name: str) -> Mapping[str, Any] | None:
    """What the check takes; None when it does not suit the output, or the output is unknown."""
    if name in UNIVERSAL_CHECKS:
        return NO_SETTINGS
    to = draft.output.text("to") if draft.output else None
    role = draft.output_role(to.value) if to else None
    if to is None or role is None or name not in role.checks:
        return None
    return draft.manifests[to.value].checks[name].schema


def _kind(root: Node) -> str:
    """What the whole file is, without a word of it: it may be any file, a token's for one."""
    return "a list" if isinstance(root, Items) else "a text"
