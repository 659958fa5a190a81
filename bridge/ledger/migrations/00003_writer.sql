-- +goose Up
-- The number, at random, of the bridge's life that writes; no other may.
ALTER TABLE bridge ADD COLUMN writer BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE bridge DROP COLUMN writer;
