-- +goose Up
-- The submissions that rows in flight share: arrays. document is the submission with its members, packed (pack.go). job is the
-- array's number, 0 before it is known. The other columns are for people.
CREATE TABLE submissions (
    name       TEXT   NOT NULL PRIMARY KEY,
    generation BIGINT NOT NULL,
    queue      TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    job        BIGINT NOT NULL,
    document   TEXT   NOT NULL
);
