-- Groups, and what they may do with bundles and worksheets. The group "public" has everybody as
-- a member, also those who have not signed in; it has no rows in group_members.
-- +goose Up
CREATE TABLE groups (
    uuid         TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    -- null for the group "public"
    owner_id     TEXT REFERENCES users (id),
    user_defined INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX groups_by_owner ON groups (owner_id);
INSERT INTO groups (uuid, name, owner_id, user_defined) VALUES ('0x00000000000000000000000000000000', 'public', NULL, 0);

CREATE TABLE group_members (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    group_uuid TEXT NOT NULL REFERENCES groups (uuid) ON DELETE CASCADE,
    is_admin   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, group_uuid)
);
CREATE INDEX group_members_by_group ON group_members (group_uuid);

-- Permissions are 1 (read) and 2 (all); no row means none.
CREATE TABLE bundle_permissions (
    bundle_uuid TEXT NOT NULL REFERENCES bundles (uuid) ON DELETE CASCADE,
    group_uuid  TEXT NOT NULL REFERENCES groups (uuid) ON DELETE CASCADE,
    permission  INTEGER NOT NULL,
    PRIMARY KEY (bundle_uuid, group_uuid)
);
CREATE INDEX bundle_permissions_by_group ON bundle_permissions (group_uuid);

CREATE TABLE worksheet_permissions (
    worksheet_uuid TEXT NOT NULL REFERENCES worksheets (uuid) ON DELETE CASCADE,
    group_uuid     TEXT NOT NULL REFERENCES groups (uuid) ON DELETE CASCADE,
    permission     INTEGER NOT NULL,
    PRIMARY KEY (worksheet_uuid, group_uuid)
);
CREATE INDEX worksheet_permissions_by_group ON worksheet_permissions (group_uuid);
INSERT INTO worksheet_permissions (worksheet_uuid, group_uuid, permission)
    SELECT uuid, '0x00000000000000000000000000000000', 1 FROM worksheets WHERE public > 0;
ALTER TABLE worksheets DROP COLUMN public;
CREATE INDEX worksheets_by_owner ON worksheets (owner_id);

ALTER TABLE users ADD COLUMN email TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN first_name TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN last_name TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN affiliation TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN url TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN notifications INTEGER NOT NULL DEFAULT 2;
ALTER TABLE users ADD COLUMN last_login BIGINT NOT NULL DEFAULT 0;

-- The uuids of deleted bundles. Caches know contents by their bundle's uuid, so no other bundle
-- may get one of these.
CREATE TABLE deleted_bundles (
    uuid    TEXT PRIMARY KEY,
    deleted BIGINT NOT NULL
);

-- The greatest sort_key of a worksheet is asked for with every new item.
DROP INDEX worksheet_items_by_worksheet;
CREATE INDEX worksheet_items_in_order ON worksheet_items (worksheet_uuid, sort_key);
UPDATE worksheet_items SET sort_key = id WHERE sort_key IS NULL;
