-- What the commands of runs ran on: a JSON object, which their workers report (codalab.Platform).
-- +goose Up
-- Empty if no worker has reported one.
ALTER TABLE bundles ADD COLUMN platform TEXT NOT NULL DEFAULT '';
