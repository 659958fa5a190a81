-- +goose Up
-- The number of the bridge's life that writes; those before may not any more.
ALTER TABLE bridge ADD COLUMN writer BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE bridge DROP COLUMN writer;
