"""Forward patches: how a step's change of a packet's data is kept on its event.

A patch is a list of `[path, value]` sets and `[path]` removals, applied in order;
a path lists object keys and list positions, and a set just behind a list's end
appends. Where the whole value is shorter it stands instead. The stored text is
`{"ops": …}` or `{"value": …}`. JSON merge patch (RFC 7396) is no choice: it cannot
set a null.

Two values are the same only when their JSON text is: `1` and `1.0`, `true` and
`1`, and two orders of the same keys all differ, so the fold of a packet prints
exactly what the run printed.
Source: design §5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pipo import payload

# A fold never applies more patches than this: then the value is stored whole.
PATCHES_MAX = 32
# Below this depth a value that differs is set whole.
DEPTH_MAX = 64

# What `step` raises for a patch or a value that is damaged.
MISFITS = (msgspec.DecodeError, LookupError, TypeError, ValueError)

Path = tuple[str | int, ...]
Op = list[Any]

# Stored texts are ours: they need none of the refusals that foreign JSON needs.
_decode = msgspec.json.Decoder().decode


def make(before: Any, after: Any, *, whole: bool) -> tuple[str, bool] | None:
    """The stored patch and whether it holds the whole value; None when nothing changed.

    Raises: payload.BadPayload, when `after` holds what JSON cannot.
    """
    ops: list[Op] = []
    _diff(before, after, (), ops)
    if not ops:
        return None
    value = payload.encode(after)
    if not whole and ops[0][0] != []:
        patch = payload.encode(ops)
        if len(patch) < len(value):
            return f'{{"ops":{patch.decode()}}}', False
    return f'{{"value":{value.decode()}}}', True


def fold(birth: bytes, patches: Iterable[str]) -> bytes:
    """The data after these patches, oldest first, as JSON text; `birth` as it is when none.

    Raises: payload.BadPayload, when what is stored is damaged.
    """
    stored = list(patches)
    if not stored:
        return birth
    try:
        return payload.encode(fold_value(_decode(birth), stored))
    except MISFITS as error:
        raise payload.BadPayload(f"the stored patches do not fit: {error}") from error


def fold_value(value: Any, patches: Sequence[str]) -> Any:
    """The value after these stored patches; `value` itself may be changed in place."""
    for text in patches:
        value = step(value, text)
    return value


def step(value: Any, text: str) -> Any:
    """The value after one stored patch; `value` itself may be changed in place."""
    patch = _decode(text)
    if "value" in patch:
        return patch["value"]
    for op in patch["ops"]:
        _apply(value, op)
    return value


def _apply(value: Any, op: Op) -> None:
    *parents, last = op[0]
    place = value
    for part in parents:
        place = place[part]
    if len(op) == 1:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(op[1])
    else:
        place[last] = op[1]


def _diff(before: Any, after: Any, path: Path, ops: list[Op]) -> None:
    """Adds the ops that lead from `before` to `after`, which stand at `path`."""
    if before is after:
        return
    if len(path) == DEPTH_MAX:
        if payload.encode(before) != payload.encode(after):
            ops.append([list(path), after])
        return
    if type(before) is type(after):
        if isinstance(after, dict):
            if _diff_dicts(before, after, path, ops):
                return
        elif isinstance(after, list):
            _diff_lists(before, after, path, ops)
            return
        elif before == after and (not isinstance(after, float) or str(before) == str(after)):
            return
    ops.append([list(path), after])


def _diff_dicts(before: dict[str, Any], after: dict[str, Any], path: Path, ops: list[Op]) -> bool:
    """Whether patching key by key ends in the same order of keys; only then it adds ops."""
    kept = [key for key in before if key in after]
    if list(after)[: len(kept)] != kept:
        return False
    ops.extend([[*path, key]] for key in before if key not in after)
    for key, value in after.items():
        if key in before:
            _diff(before[key], value, (*path, key), ops)
        else:
            ops.append([[*path, key], value])
    return True


def _diff_lists(before: list[Any], after: list[Any], path: Path, ops: list[Op]) -> None:
    ops.extend([[*path, index]] for index in range(len(before) - 1, len(after) - 1, -1))
    for index, value in enumerate(after):
        if index < len(before):
            _diff(before[index], value, (*path, index), ops)
        else:
            ops.append([[*path, index], value])
