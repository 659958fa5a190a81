-- The data directory that a PostgreSQL database belongs to. A SQLite database lies in its data
-- directory, and has no row here.
-- +goose Up
CREATE TABLE data_directory (
    id TEXT PRIMARY KEY
);
