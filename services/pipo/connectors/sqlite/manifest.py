"""sqlite: packets as rows of a table."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole, Role
from pipo.connectors.schema import (
    KEEPS_KEYS,
    SQL_NAME,
    anything,
    boolean,
    choice,
    closed,
    list_of,
    literal,
    map_of,
    path,
    text,
)

_PARAMS = list_of(anything("A value for a `?`."), "The values for the `?` of the query, in order.")

MANIFEST = Manifest(
    name="sqlite",
    summary="Writes each packet as a row of a SQLite table.",
    output=OutputRole(
        closed(
            required=("path", "table"),
            path=path("The database file; it and its folders are made as needed."),
            table=literal("The table.", pattern=SQL_NAME),
            create=boolean("Whether a missing table is made.", default=False),
            mode=choice(
                "What a second write of a key does: nothing, or replace the other columns.",
                "insert",
                "upsert",
                default="insert",
            ),
            key=literal(
                "The column that makes a repeated write harmless.",
                default="packet_id",
                pattern=SQL_NAME,
            ),
            columns=map_of(
                anything("The column's value."),
                "Each column and its value; the fields of `data` and the key unless set.",
                propertyNames={"pattern": SQL_NAME},
                **KEEPS_KEYS,
            ),
        ),
        effect="write",
        checks=("record_exists", "row_count", "query"),
        batches=True,
        target=lambda settings: {"path": settings["path"], "table": settings["table"]},
    ),
    checks={
        "record_exists": Role(
            {
                **closed(
                    required=("where",),
                    where=map_of(
                        anything("What the column must be."),
                        "Columns and what they must be, all of them in one row.",
                        minProperties=1,
                        **KEEPS_KEYS,
                    ),
                ),
                "description": "One row of the output's table matches every pair of `where`.",
            }
        ),
        "row_count": Role(
            {
                **closed(
                    required=("query",),
                    query=text("A SELECT; values go into `params`."),
                    params=_PARAMS,
                    min={
                        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
                        "description": "How many rows it must return at least.",
                        "default": 1,
                    },
                ),
                "description": "The query returns at least `min` rows.",
            }
        ),
        "query": Role(
            {
                **closed(
                    sql=text("A SELECT whose first value must be truthy."),
                    query=text("The same, under its other name."),
                    params=_PARAMS,
                ),
                "anyOf": [{"required": ["sql"]}, {"required": ["query"]}],
                "description": "The first column of the first row is truthy.",
            }
        ),
    },
)
