-- What searches read of all bundles, in one narrow index, so that they need not read the bundles'
-- long rows.
-- +goose Up
-- The permission of the group "public", which stands in bundle_permissions too.
ALTER TABLE bundles ADD COLUMN public BIGINT NOT NULL DEFAULT 0;
UPDATE bundles SET public = COALESCE((
    SELECT permission FROM bundle_permissions p
    WHERE p.bundle_uuid = bundles.uuid AND p.group_uuid = '0x00000000000000000000000000000000'), 0);

-- The metadata key tags, each tag between line feeds; "*" if they do not fit into the index; null
-- until the server's next start.
ALTER TABLE bundles ADD COLUMN tags TEXT;
-- The metadata key time in microseconds; null where there is none.
ALTER TABLE bundles ADD COLUMN run_time BIGINT;

CREATE INDEX bundles_in_order ON bundles (
    created, uuid, owner_id, public, is_anonymous, state, bundle_type, name, tags, data_size, run_time);
CREATE INDEX bundles_with_many_tags ON bundles (uuid) WHERE tags = '*';
DROP INDEX bundles_by_owner;
CREATE INDEX bundles_by_owner ON bundles (owner_id, created, uuid);

DROP INDEX bundle_permissions_by_group;
CREATE INDEX bundle_permissions_by_group ON bundle_permissions (group_uuid, bundle_uuid, permission);

CREATE INDEX worksheet_items_by_subworksheet ON worksheet_items (subworksheet_uuid);
