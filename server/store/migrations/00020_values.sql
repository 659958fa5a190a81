-- The values in small files of bundles' contents, such as /stats.json:acc, by which searches choose and sort.
-- +goose Up
-- The name of the contents whose values are in bundle_values. It differs from contents until the server has read these.
ALTER TABLE bundles ADD COLUMN valued TEXT NOT NULL DEFAULT '';
CREATE INDEX bundles_unvalued ON bundles (uuid) WHERE valued <> contents;

CREATE TABLE bundle_values (
    bundle_uuid TEXT NOT NULL REFERENCES bundles (uuid) ON DELETE CASCADE,
    path        TEXT NOT NULL,
    -- null for a text that is no finite number
    number      DOUBLE PRECISION,
    text        TEXT NOT NULL,
    PRIMARY KEY (bundle_uuid, path)
);
CREATE INDEX bundle_values_by_path ON bundle_values (path, bundle_uuid, number, text);
