-- What users did with each bundle. The names are those of the time.
-- +goose Up
CREATE TABLE bundle_history (
    bundle_uuid TEXT NOT NULL REFERENCES bundles (uuid) ON DELETE CASCADE,
    -- from 1 on
    number      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    -- no references: users may go
    user_id     TEXT NOT NULL,
    user_name   TEXT NOT NULL,
    action      TEXT NOT NULL,
    details     TEXT NOT NULL,
    PRIMARY KEY (bundle_uuid, number)
);
