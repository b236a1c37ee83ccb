"""file: packets as records of a file, or one file each."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole, Role, Schema
from pipo.connectors.schema import choice, closed, path, text

_WITH: Schema = closed(
    required=("path",),
    path=path("The file; it and its folders are made as needed."),
    format=choice("What one record looks like.", "jsonl", "json", "csv", "text", default="jsonl"),
    mode=choice(
        "Whether records are added or replace the file.", "append", "write", default="append"
    ),
)

_PATH = path("The file to look at; the output's own unless set.")

MANIFEST = Manifest(
    name="file",
    summary="Writes each packet to a file.",
    tap=Role(_WITH, effect="write"),
    output=OutputRole(
        _WITH,
        effect="write",
        checks=("file_exists", "file_nonempty", "line_contains", "checksum"),
        batches=True,
        target=lambda settings: {
            "path": settings["path"],
            "format": settings.get("format", "jsonl"),
            "mode": settings.get("mode", "append"),
        },
    ),
    checks={
        "file_exists": Role({**closed(path=_PATH), "description": "The file is there."}),
        "file_nonempty": Role(
            {**closed(path=_PATH), "description": "The file is there and not empty."}
        ),
        "line_contains": Role(
            {
                **closed(
                    required=("value",), value=text("What one line must contain."), path=_PATH
                ),
                "description": "One line of the file contains `value`.",
            }
        ),
        "checksum": Role(
            {
                **closed(
                    required=("sha256",),
                    sha256=text(
                        "The SHA-256 of the whole file, 64 hex digits of any case.",
                        pattern=r"^[0-9A-Fa-f]{64}$",
                    ),
                    path=_PATH,
                ),
                "description": "The whole file has the SHA-256 `sha256`.",
            }
        ),
    },
)
