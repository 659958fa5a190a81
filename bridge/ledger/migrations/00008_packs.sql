-- +goose Up
-- pack is 1 if the attempt shared its job with others: the times are its own then, and not the job's.
ALTER TABLE charges ADD COLUMN pack BIGINT NOT NULL DEFAULT 0;
