-- +goose Up
-- The form of document: 1 is that of the versions before this migration.
ALTER TABLE rows ADD COLUMN format BIGINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE rows DROP COLUMN format;
