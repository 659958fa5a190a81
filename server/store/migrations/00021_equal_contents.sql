-- Equal files of an owner's contents are the same files on the disk. A new upload looks for contents of the same size, and for
-- the newest of the same name.
-- +goose Up
CREATE INDEX bundles_by_size ON bundles (owner_id, data_size, entries, created) WHERE contents <> '';
CREATE INDEX bundles_by_owner_and_name ON bundles (owner_id, name, created) WHERE contents <> '';
