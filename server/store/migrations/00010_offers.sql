-- A bundle or worksheet that its owner offers to another user. The row is the owner's until that user accepts.
-- +goose Up
-- The user to whom it is offered, and the time of the offer; empty and 0 without an offer.
ALTER TABLE bundles ADD COLUMN offered_to TEXT NOT NULL DEFAULT '';
ALTER TABLE bundles ADD COLUMN offered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE worksheets ADD COLUMN offered_to TEXT NOT NULL DEFAULT '';
ALTER TABLE worksheets ADD COLUMN offered BIGINT NOT NULL DEFAULT 0;
CREATE INDEX bundles_offered ON bundles (offered_to) WHERE offered_to <> '';
CREATE INDEX worksheets_offered ON worksheets (offered_to) WHERE offered_to <> '';

-- No two new names differ by case alone. The names of before this migration, and imported ones, may.
CREATE INDEX users_by_folded_name ON users (lower(name));
CREATE INDEX groups_by_folded_name ON groups (lower(name));
CREATE INDEX worksheets_by_folded_name ON worksheets (lower(name));

-- The names that users had before, in lower case: nobody else may take them by a rename.
CREATE TABLE former_names (
    name    TEXT PRIMARY KEY,
    user_id TEXT NOT NULL
);
CREATE INDEX former_names_by_user ON former_names (user_id);
