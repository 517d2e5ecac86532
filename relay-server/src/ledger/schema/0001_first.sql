-- Times are milliseconds since 1970 UTC. Columns named after a wire type hold its JSON.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tokens (
    token_id     TEXT PRIMARY KEY,
    role         TEXT NOT NULL,
    label        TEXT NOT NULL,
    token_hash   BLOB NOT NULL,
    machine_id   TEXT,              -- a proxy's, bound by its first hello
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;

CREATE TABLE pairings (
    code_hash  BLOB PRIMARY KEY,
    role       TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
    session_key     INTEGER PRIMARY KEY,
    session_id      TEXT NOT NULL UNIQUE,
    machine_id      TEXT NOT NULL,
    session         TEXT NOT NULL,
    settings        TEXT,
    pruned_sequence INTEGER NOT NULL DEFAULT 0, -- events up to here were dropped by retention
    closed_at       INTEGER
);

-- Clustered by session, so that a replay is one range scan. `event` is the frame as it was said.
CREATE TABLE events (
    session_key INTEGER NOT NULL,
    sequence    INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    event       TEXT NOT NULL,
    PRIMARY KEY (session_key, sequence)
) WITHOUT ROWID;

-- The transcript. A browser's send is a message too: it alone has a delivery.
CREATE TABLE messages (
    message_key      INTEGER PRIMARY KEY,
    session_key      INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,  -- where it stands: that of its first event
    message_id       TEXT NOT NULL,     -- for a send, its client_message_id
    revision         INTEGER NOT NULL,
    at               INTEGER NOT NULL,
    message          TEXT NOT NULL,     -- without `status`: that is `delivery`
    delivery         TEXT,
    token_id         TEXT,              -- whose send it is
    settled_sequence INTEGER            -- the event that told the present delivery
);
CREATE UNIQUE INDEX messages_in_order ON messages (session_key, sequence);
CREATE UNIQUE INDEX messages_by_id ON messages (session_key, message_id);
CREATE INDEX messages_unsettled ON messages (session_key, sequence) WHERE delivery = 'accepted';

-- Dialogs that are open or being answered; what became of the others is in the audit trail.
CREATE TABLE prompts (
    session_key INTEGER NOT NULL,
    prompt_id   TEXT NOT NULL,
    prompt      TEXT NOT NULL,
    expires_at  INTEGER,
    PRIMARY KEY (session_key, prompt_id)
) WITHOUT ROWID;

-- Launches under way, and results held for a browser that went away.
CREATE TABLE launches (
    request_id TEXT PRIMARY KEY,    -- as the proxy knows it
    launch     TEXT NOT NULL        -- the hub's record of it
) WITHOUT ROWID;

CREATE TABLE attachments (
    attachment_id TEXT PRIMARY KEY,
    sha256        TEXT NOT NULL,
    name          TEXT NOT NULL,
    media_type    TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    token_id      TEXT NOT NULL,
    created_at    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE attachment_uses (
    attachment_id TEXT NOT NULL,
    session_key   INTEGER NOT NULL,
    PRIMARY KEY (attachment_id, session_key)
) WITHOUT ROWID;

CREATE TABLE audit (
    audit_id    INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    action      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    token_id    TEXT,
    device_name TEXT,
    machine_id  TEXT,
    session_id  TEXT,
    subject     TEXT,   -- the id of the send, prompt, launch or command
    detail      TEXT    -- prompt text and answer, agent and workspace, model, error
);
CREATE TRIGGER audit_rows_never_change BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
CREATE TRIGGER audit_rows_never_leave BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
