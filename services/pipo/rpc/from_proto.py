"""Messages to the values that the core works with."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from pipo.errors import Finding
from pipo.rpc.stubs import packet_pb2


def finding(message: packet_pb2.Diagnostic) -> Finding:
    return Finding(
        code=message.code,
        severity=message.severity,
        message=message.message,
        hint=message.hint,
        line=message.line,
        col=message.col,
        path=message.path,
    )


def optional(message: Message, field: str) -> Any:
    """An optional field's value, or None when it is absent."""
    return getattr(message, field) if message.HasField(field) else None
