-- The bundle with a user's picture, which CodaLab's web page shows; empty for none.
-- +goose Up
ALTER TABLE users ADD COLUMN avatar TEXT NOT NULL DEFAULT '';
