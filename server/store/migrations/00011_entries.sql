-- Disk quotas count entries: files, directories and links of contents, and bundles.
-- +goose Up
-- The number of entries of the contents; 0 if there are none, or if a program without this column has stored them.
-- The server counts the latter at its start.
ALTER TABLE bundles ADD COLUMN entries BIGINT NOT NULL DEFAULT 0;
CREATE INDEX bundles_uncounted ON bundles (uuid) WHERE entries = 0 AND contents <> '';
ALTER TABLE users ADD COLUMN entries_quota BIGINT NOT NULL DEFAULT 20000000;
ALTER TABLE users ADD COLUMN entries_used BIGINT NOT NULL DEFAULT 0;
UPDATE users SET entries_used = (SELECT count(*) FROM bundles WHERE owner_id = users.id);
