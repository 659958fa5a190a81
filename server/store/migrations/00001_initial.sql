-- Times are Unix microseconds, truth values 0 and 1, metadata and tags JSON.
-- +goose Up
CREATE TABLE users (
    id                 TEXT PRIMARY KEY,
    name               TEXT NOT NULL UNIQUE,
    password           TEXT NOT NULL,
    joined             BIGINT NOT NULL,
    time_quota         BIGINT NOT NULL,
    disk_quota         BIGINT NOT NULL,
    parallel_run_quota BIGINT NOT NULL,
    time_used          BIGINT NOT NULL DEFAULT 0,
    disk_used          BIGINT NOT NULL DEFAULT 0
);

-- One row for each grant; only hashes of the tokens are kept.
CREATE TABLE grants (
    access          TEXT PRIMARY KEY,
    refresh         TEXT NOT NULL UNIQUE,
    client          TEXT NOT NULL,
    user_id         TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    access_expires  BIGINT NOT NULL,
    refresh_expires BIGINT NOT NULL
);
CREATE INDEX grants_by_user ON grants (user_id);

CREATE TABLE worksheets (
    uuid        TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    owner_id    TEXT NOT NULL REFERENCES users (id),
    title       TEXT,
    frozen      TEXT,
    is_anonymous INTEGER NOT NULL DEFAULT 0,
    -- what the group "public" may do: 0 nothing, 1 read
    public      INTEGER NOT NULL,
    tags        TEXT NOT NULL DEFAULT '[]',
    created     BIGINT NOT NULL,
    modified    BIGINT NOT NULL
);

CREATE TABLE bundles (
    uuid         TEXT PRIMARY KEY,
    bundle_type  TEXT NOT NULL,
    owner_id     TEXT NOT NULL REFERENCES users (id),
    command      TEXT,
    state        TEXT NOT NULL,
    frozen       TEXT,
    is_anonymous INTEGER NOT NULL DEFAULT 0,
    -- name and data_size stand in metadata too
    name         TEXT NOT NULL,
    data_size    BIGINT NOT NULL DEFAULT 0,
    metadata     TEXT NOT NULL,
    created      BIGINT NOT NULL,
    -- the directory that holds the contents; empty where there are none
    contents     TEXT NOT NULL DEFAULT '',
    -- the worker that has the run, also after its end; empty where none has
    worker_user  TEXT NOT NULL DEFAULT '',
    worker_id    TEXT NOT NULL DEFAULT '',
    assigned     BIGINT NOT NULL DEFAULT 0,
    -- why the run is to be killed; empty where it is not
    kill_message TEXT NOT NULL DEFAULT ''
);
CREATE INDEX bundles_by_owner ON bundles (owner_id);
CREATE INDEX bundles_unfinished ON bundles (state) WHERE state NOT IN ('ready', 'failed', 'killed');

CREATE TABLE dependencies (
    child_uuid  TEXT NOT NULL REFERENCES bundles (uuid) ON DELETE CASCADE,
    child_path  TEXT NOT NULL,
    -- no reference: a parent may go while its children stay
    parent_uuid TEXT NOT NULL,
    parent_path TEXT NOT NULL,
    position    INTEGER NOT NULL,
    PRIMARY KEY (child_uuid, child_path)
);
CREATE INDEX dependencies_by_parent ON dependencies (parent_uuid);

CREATE TABLE worksheet_items (
    id                BIGINT PRIMARY KEY,
    worksheet_uuid    TEXT NOT NULL REFERENCES worksheets (uuid) ON DELETE CASCADE,
    type              TEXT NOT NULL,
    bundle_uuid       TEXT,
    subworksheet_uuid TEXT,
    value             TEXT NOT NULL DEFAULT '',
    sort_key          BIGINT
);
CREATE INDEX worksheet_items_by_worksheet ON worksheet_items (worksheet_uuid);
CREATE INDEX worksheet_items_by_bundle ON worksheet_items (bundle_uuid);
