-- A second start of a worker with the same token replaces the first one: the tokens of each start have its number.
-- +goose Up
ALTER TABLE worker_tokens ADD COLUMN start_number BIGINT NOT NULL DEFAULT 0; -- 0 for a token that a login made
DROP INDEX worker_tokens_by_user;
CREATE INDEX worker_tokens_by_worker ON worker_tokens (user_id, worker_id);
