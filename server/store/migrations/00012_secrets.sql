-- Secrets of users, encrypted with a key that is not in the database (package vault).
-- +goose Up
CREATE TABLE secrets (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name    TEXT NOT NULL,
    sealed  TEXT NOT NULL,
    key_id  TEXT NOT NULL, -- names the key
    set_at  BIGINT NOT NULL,
    used_at BIGINT NOT NULL DEFAULT 0, -- when a worker last got it; 0 if none has
    PRIMARY KEY (user_id, name)
);
