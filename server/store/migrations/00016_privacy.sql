-- Settings that the data directory remembers. default_permission is who may read new worksheets. It is missing in a
-- directory that an older server made, where everybody may: the operator has not chosen yet.
-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO settings (name, value) SELECT 'default_permission', 'none' WHERE NOT EXISTS (SELECT 1 FROM users);
