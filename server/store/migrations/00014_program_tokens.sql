-- Tokens of accounts for programs: a bridge, a stand-alone worker, a worker manager. Only their hashes are kept.
-- +goose Up
CREATE TABLE program_tokens (
    id        TEXT PRIMARY KEY,            -- no secret: lists and logs name the token by it
    token     TEXT NOT NULL UNIQUE,
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    workers   TEXT NOT NULL,               -- ids of workers, and beginnings of ids with a * at the end, with blanks between them
    manages   INTEGER NOT NULL DEFAULT 0,  -- whether a worker manager may use it
    by_login  INTEGER NOT NULL DEFAULT 0,  -- whether a login of the user made it: a change of the password ends it
    created   BIGINT NOT NULL,
    last_used BIGINT NOT NULL DEFAULT 0,
    expires   BIGINT NOT NULL DEFAULT 0    -- 0 for never
);
CREATE INDEX program_tokens_by_user ON program_tokens (user_id);

-- A worker token that a program token made ends with it.
ALTER TABLE worker_tokens ADD COLUMN made_by TEXT REFERENCES program_tokens (id) ON DELETE CASCADE;
CREATE INDEX worker_tokens_by_maker ON worker_tokens (made_by) WHERE made_by IS NOT NULL;
