-- +goose Up
-- The history of a bundle without a row, packed (pack.go); empty where it is still in history.
ALTER TABLE forgotten ADD COLUMN entries TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE forgotten DROP COLUMN entries;
