"""Names and kinds: P015, P030, P036, P060, P061."""

from __future__ import annotations

import re
from typing import Final

from pipo.lang.draft import Draft, NodeBlock, text_of
from pipo.lang.model import KINDS
from pipo.lang.suggest import one_of

INPUTS_LIMIT: Final = 16
RESERVED: Final = ("input", "output")
PIPOS_OWN: Final = "engine"
FUNCTION: Final = re.compile(r"fn\.([A-Za-z_$][A-Za-z0-9_$]*)")


def inputs(draft: Draft) -> bool:
    """P060. Whether the file has inputs to go on with."""
    single, several = draft.root.key("input"), draft.root.key("inputs")
    if single and several:
        draft.report("P060", several, "both `input` and `inputs` are set")
    elif not single and not several:
        draft.report("P060", draft.root, "there is neither `input` nor `inputs`")
    elif several and len(draft.inputs) > INPUTS_LIMIT:
        draft.report(
            "P060", several, f"there are {len(draft.inputs)} inputs, at most {INPUTS_LIMIT} may be"
        )
    else:
        return True
    return False


def reserved(draft: Draft) -> bool:
    """P002, P015, P061. Whether every name means one thing."""
    clear = True
    own = text_of(draft.root, "name")
    if own and own.value == PIPOS_OWN:
        hint = "choose another: the name is Pipo's own"
        draft.report("P002", own, f"a pipeline cannot be called `{PIPOS_OWN}`", hint)
    for node in draft.nodes.values():
        if node.name in RESERVED and node.key:
            draft.report("P015", node.key, f"a node cannot be called `{node.name}`")
            clear = False
    for block in draft.inputs:
        taken = block.name in draft.nodes and block.name not in RESERVED
        if block.key and (taken or block.name == "output"):
            owner = "a node" if taken else "the output"
            draft.report("P061", block.key, f"the name `{block.name}` belongs to {owner}")
            clear = False
    return clear


def kinds(draft: Draft) -> None:
    """P030, P036."""
    for node in draft.sound_nodes:
        if not node.kind:
            set_ = " and ".join(f"`{kind}`" for kind in node.kinds)
            problem = f"is {set_} at once" if set_ else "has no kind"
            hint = f"set exactly one of {', '.join(KINDS)}"
            draft.report(
                "P036", node.map, f"the node `{node.name}` {problem}", hint, place=node.place
            )
        elif node.kind in ("tap", "transform", "agent"):
            _known(draft, node)


def _known(draft: Draft, node: NodeBlock) -> None:
    uses = node.uses
    if uses is None or draft.role(node.kind, uses.value):
        return
    names = draft.names(node.kind)
    if node.kind != "agent":
        if FUNCTION.fullmatch(uses.value):
            return
        names.append("fn.<name>")
    hint = "did you mean `claude_api`?" if uses.value == "claude" else one_of(uses.value, names)
    draft.report("P030", uses, f"there is no {node.kind} `{uses.value[:60]}`", hint)
