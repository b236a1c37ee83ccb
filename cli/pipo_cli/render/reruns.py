"""`pipo rerun`: the plan, and what runs (R032-R034)."""

from __future__ import annotations

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.dead_letters import skipped_lines, unlisted
from pipo_cli.render.tables import Column, table
from pipo_cli.render.times import count

COLUMNS = (Column("STEP"), Column("KIND"), Column("EFFECT"))
OUTPUT = "output"
# What running a step again means outside, by its effect.
EFFECTS = {
    "spend": "spends again (spend)",
    "external": "reaches outside again (external)",
    "write": "writes again (write)",
}
WRITES = "writes again (idempotent on its key)"
DOUBLES = "writes again (not idempotent)"


def rerun(name: str, reply: pipo_pb2.RerunReply) -> list[str]:
    """The plan, or what was begun."""
    lines = [_head(name, reply)]
    for packet in reply.packets:
        branches = ", ".join(filter(None, (unit.id.partition(":")[2] for unit in packet.units)))
        lines.append(f"  {packet.packet_id}" + (f"  ({branches})" if branches else ""))
    lines += unlisted(reply.rerun, len(reply.packets))
    lines += skipped_lines(reply.skipped)
    lines += unlisted(reply.skipped_count, len(reply.skipped))
    if reply.path:
        lines.append("steps that run again:" if reply.dry else "steps that run:")
        rows = [[step.step, step.kind, _effect(step)] for step in reply.path]
        lines += [f"  {line}" for line in table(COLUMNS, rows)]
    if reply.rerun:
        follow = f"follow them with pipo packets {name} or pipo inspect {name} <id>"
        lines.append("nothing ran yet: run it with --yes" if reply.dry else follow)
    return lines


def _head(name: str, reply: pipo_pb2.RerunReply) -> str:
    from_ = getattr(reply, "from")
    on = f"on v{reply.current}" if reply.HasField("current") else "each on its own version"
    done = "plan: rerun" if reply.dry else "rerunning"
    return f"{done} {count(reply.rerun)} packet(s) of {name} from '{from_}', {on}"


def _effect(step: pipo_pb2.RerunStep) -> str:
    if step.effect == "write" and step.step == OUTPUT:
        return WRITES if _is_keyed(step.kind.partition(": ")[2]) else DOUBLES
    return EFFECTS.get(step.effect, step.effect)


def _is_keyed(connector: str) -> bool:
    # Only a plan with an output asks, and needs every manifest for it.
    from pipo.connectors import registry

    manifest = registry.manifests().get(connector)
    return manifest is not None and manifest.output is not None and manifest.output.keyed
