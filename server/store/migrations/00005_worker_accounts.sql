-- Accounts of programs that run bundles for others, such as a bridge's.
-- +goose Up
ALTER TABLE users ADD COLUMN is_worker INTEGER NOT NULL DEFAULT 0;

-- Whose bundles such an account's workers take. One of the two columns is set, or neither for
-- everybody's.
CREATE TABLE worker_scopes (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    owner_id   TEXT NOT NULL DEFAULT '',
    group_uuid TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (user_id, owner_id, group_uuid)
);

-- What a worker account may read is found by the runs that it has.
CREATE INDEX bundles_on_workers ON bundles (worker_user) WHERE worker_user <> '';
