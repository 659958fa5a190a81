-- +goose Up
ALTER TABLE bridge ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE bridge DROP COLUMN generation;
