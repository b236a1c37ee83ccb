-- The journal's schema, as a fresh journal gets it. One statement ends at each line that ends
-- with a semicolon. A change here is a migration beside it; a test compares the two.
-- Times are milliseconds since the epoch. Columns named data, result, error, detail, patch,
-- files and upstream hold JSON text.

-- Single facts: schema, pipeline, journal_id, epoch, ttl_anchor, pause_reason, last_compaction,
-- file_hash.
CREATE TABLE meta (
    key TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Every version of the pipeline that ever ran, with the code and schemas it names as text.
-- `folder` is what its relative paths mean; it stands last, where a migration put it.
CREATE TABLE versions (
    version INTEGER PRIMARY KEY NOT NULL CHECK (version >= 1),
    source TEXT NOT NULL,
    compiled BLOB NOT NULL,
    files TEXT NOT NULL,
    hash TEXT NOT NULL,
    author TEXT NOT NULL,
    author_kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    proposal TEXT,
    created_at INTEGER NOT NULL,
    folder TEXT
) STRICT;

-- Packets and their fan-out copies. `data` stands last: reading a state never walks a payload.
CREATE TABLE units (
    id TEXT PRIMARY KEY NOT NULL,
    root TEXT REFERENCES units (id),
    parent TEXT REFERENCES units (id),
    branch TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN (
        'accepted', 'processing', 'writing', 'verifying', 'branched', 'escalated',
        'delivered', 'filtered', 'dead_lettered', 'rejected'
    )),
    cursor TEXT,
    queue_seq INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    retry_at INTEGER,
    iteration INTEGER NOT NULL DEFAULT 0 CHECK (iteration >= 0),
    hops INTEGER NOT NULL DEFAULT 0 CHECK (hops >= 0),
    -- Patches since the data was last stored whole.
    patched INTEGER NOT NULL DEFAULT 0 CHECK (patched >= 0),
    version INTEGER NOT NULL REFERENCES versions (version),
    input TEXT NOT NULL,
    trigger TEXT NOT NULL,
    source TEXT NOT NULL,
    key TEXT,
    upstream TEXT,
    write_no INTEGER NOT NULL DEFAULT 0 CHECK (write_no >= 0),
    acked_write_no INTEGER,
    ack_by TEXT,
    deadline_at INTEGER,
    -- How a unit was set aside: 'pause' or 'halt'.
    held TEXT,
    group_size INTEGER,
    received_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    settled_at INTEGER,
    error TEXT,
    result TEXT,
    data TEXT,
    CHECK ((root IS NULL) = (branch = '')),
    CHECK ((root IS NULL) = (parent IS NULL)),
    CHECK ((settled_at IS NOT NULL)
        = (state IN ('delivered', 'filtered', 'dead_lettered', 'rejected'))),
    CHECK (CASE
        WHEN state IN ('accepted', 'processing', 'writing', 'verifying', 'escalated')
            THEN cursor IS NOT NULL AND queue_seq IS NOT NULL
        WHEN state = 'branched' THEN 1
        ELSE cursor IS NULL
    END),
    CHECK (state NOT IN ('dead_lettered', 'rejected') OR error IS NOT NULL)
) STRICT;

-- What is still moving or waiting, in the order it is taken.
CREATE INDEX units_pending ON units (queue_seq)
    WHERE state IN ('accepted', 'processing', 'writing', 'verifying', 'branched', 'escalated');

-- Settled packets by state, newest first, for listings.
CREATE INDEX units_listed ON units (state, id) WHERE settled_at IS NOT NULL AND root IS NULL;

-- Settled units by the time they settled, for retention and the last delivery.
CREATE INDEX units_settled ON units (state, settled_at) WHERE settled_at IS NOT NULL;

CREATE INDEX units_copies ON units (root) WHERE root IS NOT NULL;

CREATE INDEX units_children ON units (parent) WHERE parent IS NOT NULL;

-- Everything that happened. `state` is the unit's state after the event; it is null where the
-- event changed neither state nor place. `ms` is set on a completed step.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY NOT NULL CHECK (seq >= 1),
    at INTEGER NOT NULL,
    unit TEXT,
    type TEXT NOT NULL,
    node TEXT,
    state TEXT,
    detail TEXT,
    patch TEXT,
    ms REAL CHECK (ms IS NULL OR ms >= 0)
) STRICT;

CREATE INDEX events_unit ON events (unit, seq) WHERE unit IS NOT NULL;

-- Latency samples.
CREATE INDEX events_node ON events (node, seq) WHERE ms IS NOT NULL;

-- The newest event stays, whatever is deleted: sequence numbers never repeat.
CREATE TRIGGER events_keep_newest BEFORE DELETE ON events
    WHEN old.seq = (SELECT max(seq) FROM events)
    BEGIN SELECT raise(IGNORE); END;

-- What other pipelines handed over: a key that comes again finds its packet.
CREATE TABLE inbox (
    sender TEXT NOT NULL,
    key TEXT NOT NULL,
    packet TEXT NOT NULL,
    input TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (sender, key)
) STRICT, WITHOUT ROWID;

-- A packet's key goes with it.
CREATE INDEX inbox_packet ON inbox (packet);

-- now.<state> of roots, all.<state>, total.<event>, total.check.<check>.<verdict>.
CREATE TABLE counters (
    name TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL CHECK (value >= 0)
) STRICT, WITHOUT ROWID;

-- What an input remembers between runs.
CREATE TABLE input_state (
    input TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (input, key)
) STRICT, WITHOUT ROWID;

-- What the output noted with its last commit, such as the size of a file before an append.
CREATE TABLE marks (
    name TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
