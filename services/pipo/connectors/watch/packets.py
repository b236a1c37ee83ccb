"""From changes to the packets that tell of them. `prepare` reads files: it blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipo.clock import iso
from pipo.connectors.contract import Arrival, InputSpec
from pipo.connectors.formats import parse_body
from pipo.connectors.watch.globs import Glob
from pipo.connectors.watch.reading import CONTENT_BYTES_MAX, Moved, read_content
from pipo.connectors.watch.snapshot import Change, Stamp, readable

# What is read ahead for one commit, beyond its first file.
READ_BYTES_MAX = 4 * 1024 * 1024
_YEAR_1000_MS, _YEAR_9999_MS = -30_610_224_000_000, 253_402_300_799_999


@dataclass(slots=True)
class Batch:
    """What can be told together. Of the changes that were given, the first `used` are in it."""

    ready: list[tuple[Change, Arrival]] = field(default_factory=list)
    moved: list[Change] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    remarks: list[tuple[str, str, str]] = field(default_factory=list)
    """(message, action, name) of packets that do not carry the content as it is."""
    used: int = 0


class Packets:
    """Makes the packets of one input."""

    def __init__(self, spec: InputSpec, glob: Glob) -> None:
        self._spec = spec
        self._glob = glob
        self._reads = spec.settings.get("read") == "content"

    def prepare(self, changes: Sequence[Change]) -> Batch:
        """The packets of the first changes: all, unless their contents are large."""
        batch, size = Batch(), 0
        for change in changes:
            if size and size + change.stamp.size > READ_BYTES_MAX:
                break
            batch.used += 1
            try:
                content = self._content(change, batch)
            except Moved:
                batch.moved.append(change)
            except OSError as error:
                batch.unreadable[change.name] = error.strerror or str(error)
            else:
                if content:
                    size += min(change.stamp.size, CONTENT_BYTES_MAX)
                batch.ready.append((change, self._arrival(change, content)))
        return batch

    def _arrival(self, change: Change, content: dict[str, Any]) -> Arrival:
        path = readable(self._glob.path(change.name))
        mtime = time_of(change.stamp)
        data: dict[str, Any] = {
            "event": change.kind,
            "path": path,
            "name": readable(self._glob.shown(change.name)),
            "size": change.stamp.size,
        }
        if change.kind != "delete":
            data["mtime"] = mtime
        source = f"{path}#{change.kind}@{mtime}"
        return Arrival(self._spec.name, data | content, "watch", source, change.state)

    def _content(self, change: Change, batch: Batch) -> dict[str, Any]:
        """Raises: Moved, OSError."""
        if not self._reads or change.kind == "delete":
            return {}
        body = read_content(self._glob, change.name, change.stamp)
        if body is None:
            batch.remarks.append(
                (
                    "a file of more than 1 MiB: its content is left out",
                    "content_truncated",
                    change.name,
                )
            )
            return {"content": None, "truncated": True}
        if self._spec.format == "bytes":
            (content,) = parse_body("bytes", body)
            return {"content": content}
        try:
            return {"content": body.decode()}
        except UnicodeDecodeError:
            batch.remarks.append(
                (
                    "a file that is not UTF-8: the bytes that are none stand as U+FFFD; "
                    "`format: bytes` keeps them",
                    "content_not_text",
                    change.name,
                )
            )
            return {"content": body.decode(errors="replace")}


def time_of(stamp: Stamp) -> str:
    """When the file was last written, in ISO form; a time that this cannot say is its nearest."""
    return iso(min(max(stamp.mtime_ns // 1_000_000, _YEAR_1000_MS), _YEAR_9999_MS))
