-- Tokens of single workers; only their hashes are kept.
-- +goose Up
CREATE TABLE worker_tokens (
    token     TEXT PRIMARY KEY,
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    worker_id TEXT NOT NULL CHECK (worker_id <> ''),
    expires   BIGINT NOT NULL
);
CREATE INDEX worker_tokens_by_user ON worker_tokens (user_id);
