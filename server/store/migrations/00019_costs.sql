-- What a run has cost, beyond its metadata: a JSON object, which its worker reports (codalab.Cost).
-- +goose Up
-- Empty if no worker has reported a cost.
ALTER TABLE bundles ADD COLUMN cost TEXT NOT NULL DEFAULT '';
