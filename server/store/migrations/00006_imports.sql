-- The imports of other servers' data. Each row was written in the transaction that wrote the data.
-- +goose Up
CREATE TABLE imports (
    id     TEXT PRIMARY KEY,
    -- the database that was imported, without its password
    source TEXT NOT NULL,
    ended  BIGINT NOT NULL
);
