-- A worker renews its own token. Tokens from before this migration can be renewed, and end when they would have.
-- +goose Up
ALTER TABLE worker_tokens ADD COLUMN seconds BIGINT NOT NULL DEFAULT 86400; -- the validity, for a renewal
ALTER TABLE worker_tokens ADD COLUMN latest BIGINT NOT NULL DEFAULT 0;      -- no renewal is valid for longer
ALTER TABLE worker_tokens ADD COLUMN renewed INTEGER NOT NULL DEFAULT 0;    -- whether the worker itself got it
UPDATE worker_tokens SET latest = expires;
