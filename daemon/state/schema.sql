-- The steps of the store's schema, in SQLite's words; for PostgreSQL, BLOB becomes BYTEA. A released step never
-- changes: a new one comes at the end. A comment begins its line, and only `;` ends a statement. `version` and
-- `writer` of a row are its stamp (`StampedRows` of writer.py).

-- Step 1: the schema of mcpd 0.1.0

-- The number of transactions that have written; a writer that raises it makes all others wait.
CREATE TABLE version (value BIGINT NOT NULL);

CREATE TABLE servers (
    name TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
    listed BIGINT NOT NULL, refreshed_at DOUBLE PRECISION NOT NULL, about TEXT, introduction BLOB,
    summary TEXT, keywords TEXT, summary_of TEXT, summary_generated_at DOUBLE PRECISION,
    version BIGINT NOT NULL, writer TEXT NOT NULL);

CREATE TABLE tools (
    server TEXT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, raw BLOB NOT NULL,
    schema_hash TEXT NOT NULL, epoch BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL, summary TEXT,
    keywords TEXT, summary_generated_at DOUBLE PRECISION, updated_at DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, name));

CREATE INDEX tools_by_hash ON tools (schema_hash);

-- One row for each list: nobody asks for a part of it, and a URI may be longer than any key may be.
CREATE TABLE lists (
    server TEXT NOT NULL, kind TEXT NOT NULL, definitions BLOB NOT NULL, digest TEXT NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, kind));

-- A prompt may have the name of a tool.
CREATE TABLE given_names (
    kind TEXT NOT NULL, name TEXT NOT NULL, server TEXT NOT NULL, own TEXT NOT NULL,
    beside BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (kind, name));

CREATE TABLE sessions (
    key TEXT NOT NULL PRIMARY KEY, client TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL);

CREATE INDEX sessions_by_use ON sessions (seen_at);

CREATE TABLE loaded_tools (
    session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, position BIGINT NOT NULL,
    loaded_schema_hash TEXT NOT NULL, loaded_epoch BIGINT NOT NULL, status TEXT NOT NULL,
    invalid_reason TEXT NOT NULL, renamed_to TEXT, source TEXT NOT NULL,
    loaded_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (session, server, tool));

-- With (server, tool) in front, PostgreSQL would look for one session's row in here, among those of all.
CREATE INDEX loaded_tools_by_verdict ON loaded_tools
    (server, loaded_schema_hash, tool, status, invalid_reason, renamed_to);

CREATE TABLE switches (
    server TEXT NOT NULL, tool TEXT NOT NULL, switched_off BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, tool));

CREATE TABLE counts
    (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL);

-- `body` is the rest of the event as JSON: nobody searches in it. Written once, so it needs no stamp.
CREATE TABLE events (
    life TEXT NOT NULL, number BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, server TEXT NOT NULL,
    instance TEXT NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (life, number));

CREATE INDEX events_by_server ON events (server, at);

CREATE INDEX events_by_time ON events (at);

-- What all daemons on the store counted in each hour, since the epoch; they add to the same rows.
CREATE TABLE hours (
    hour BIGINT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (hour, name));

-- Step 2: approvals of definitions (docs/trust.md)

CREATE TABLE approvals (
    identity TEXT NOT NULL, digest TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    raw BLOB NOT NULL, by_whom TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (identity, digest));

-- Step 3: heads of the audit's chains (docs/audit.md), which an editor of the files would have to change, too

CREATE TABLE audit_heads (
    chain TEXT NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, digest TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL);

-- Step 4: the shapes of results of tools without an output schema (docs/surfaces.md): names and types, no values

CREATE TABLE observed_shapes (
    schema_hash TEXT NOT NULL PRIMARY KEY, shape BLOB NOT NULL);
