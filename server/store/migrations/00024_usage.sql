-- How runs use processors, memory and GPUs over time: texts of a few kilobytes, whose form package server/usage knows.
-- +goose Up
CREATE TABLE bundle_usage (
    bundle_uuid TEXT PRIMARY KEY REFERENCES bundles (uuid) ON DELETE CASCADE,
    series      TEXT NOT NULL
);
