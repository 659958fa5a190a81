-- Wishes of users for a mail when some bundles have ended.
-- +goose Up
CREATE TABLE notices (
    id       TEXT PRIMARY KEY,
    user_id  TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- of the bundles: a user has one notice for the same ones
    digest   TEXT NOT NULL,
    -- their number when the notice was made
    bundles  INTEGER NOT NULL,
    made     BIGINT NOT NULL,
    tries    INTEGER NOT NULL DEFAULT 0,
    next_try BIGINT NOT NULL DEFAULT 0,
    -- 0 until the mail was sent or given up
    done     BIGINT NOT NULL DEFAULT 0,
    -- the reason for which the last try failed
    problem  TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX notices_by_user ON notices (user_id, digest);
CREATE INDEX notices_waiting ON notices (next_try) WHERE done = 0;

CREATE TABLE notice_bundles (
    notice_id   TEXT NOT NULL REFERENCES notices (id) ON DELETE CASCADE,
    bundle_uuid TEXT NOT NULL REFERENCES bundles (uuid) ON DELETE CASCADE,
    PRIMARY KEY (notice_id, bundle_uuid)
);
CREATE INDEX notice_bundles_by_bundle ON notice_bundles (bundle_uuid);
