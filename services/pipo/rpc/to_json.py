"""Any message as the JSON that REST answers with and `--json` prints.

Keys are the fields' own names, in their order. Integers keep every digit; a
`bytes` field holds JSON text and is spliced as it stands; what is absent is null.
Protobuf's own JSON would quote 64-bit integers and encode bytes as base64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_encode = msgspec.json.Encoder().encode

Value = Any
Reader = Callable[[Message], Value]


def to_json(message: Message) -> bytes:
    """The message as compact JSON text."""
    return _encode(to_value(message))


def to_value(message: Message) -> dict[str, Value]:
    """The message as a dictionary that `dumps` can finish; payloads inside stay as text."""
    return {name: read(message) for name, read in _plan(message.DESCRIPTOR)}


def dumps(value: Value) -> bytes:
    """JSON text of plain values and of what `to_value` returns, in any mixture."""
    return _encode(value)


@cache
def _plan(descriptor: Descriptor) -> tuple[tuple[str, Reader], ...]:
    return tuple((field.name, _reader(field)) for field in descriptor.fields)


def _reader(field: FieldDescriptor) -> Reader:
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        convert = _converter(entry.fields_by_name["value"])
        return lambda m: {str(k): convert(v) for k, v in getattr(m, name).items()}
    convert = _converter(field)
    if field.is_repeated:
        return lambda m: [convert(v) for v in getattr(m, name)]
    if field.has_presence:
        return lambda m: convert(getattr(m, name)) if m.HasField(name) else None
    return lambda m: convert(getattr(m, name))


def _converter(field: FieldDescriptor) -> Callable[[Any], Value]:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            return to_value
        case FieldDescriptor.TYPE_BYTES:
            return _splice
        case FieldDescriptor.TYPE_ENUM:
            return _words(field)
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return lambda v: v if math.isfinite(v) else None
        case _:
            return lambda v: v


def _splice(text: bytes) -> Value:
    return msgspec.Raw(text) if text else None


def _words(field: FieldDescriptor) -> Callable[[int], Value]:
    """Enum values as words: `passed` for OUTCOME_PASSED where zero is OUTCOME_UNSPECIFIED."""
    assert field.enum_type is not None
    numbers = field.enum_type.values_by_number
    prefix = str(numbers[0].name).removesuffix("UNSPECIFIED")
    words = {n: str(v.name).removeprefix(prefix).lower() for n, v in numbers.items()}
    return lambda number: words.get(number, number)
