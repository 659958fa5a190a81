-- E-mail addresses whose owners have not confirmed them yet: the new address of a user, or that of a person who signs up and
-- becomes a user then. code is the hash of the one-time code in the mail.
-- +goose Up
CREATE TABLE confirmations (
    code        TEXT PRIMARY KEY,
    -- NULL for a person who signs up; a user has one at most
    user_id     TEXT UNIQUE REFERENCES users (id) ON DELETE CASCADE,
    email       TEXT NOT NULL,
    expires     BIGINT NOT NULL,
    -- of a person who signs up; password is hashed
    name        TEXT NOT NULL DEFAULT '',
    password    TEXT NOT NULL DEFAULT '',
    first_name  TEXT NOT NULL DEFAULT '',
    last_name   TEXT NOT NULL DEFAULT '',
    affiliation TEXT NOT NULL DEFAULT ''
);
CREATE INDEX confirmations_by_expiry ON confirmations (expires);
