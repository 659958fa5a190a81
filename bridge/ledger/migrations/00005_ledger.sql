-- +goose Up
-- Builds before the first release made these tables in five steps. This migration has the number of the
-- last step, so that a ledger of the newest of these builds needs none.

-- One row. generation is the highest of all rows that were ever saved. writer is the random number of
-- the bridge's life that writes; no other life may.
CREATE TABLE bridge (
    id         TEXT   NOT NULL PRIMARY KEY,
    generation BIGINT NOT NULL DEFAULT 0,
    writer     BIGINT NOT NULL DEFAULT 0
);

-- One row a bundle. document is the row, packed (pack.go), in the form that format names. entries counts
-- the entries that the bundle's history has had. The other columns are for people and for searches.
CREATE TABLE rows (
    bundle   TEXT   NOT NULL PRIMARY KEY,
    version  BIGINT NOT NULL,
    queue    TEXT   NOT NULL,
    phase    TEXT   NOT NULL,
    reason   TEXT   NOT NULL,
    attempt  BIGINT NOT NULL,
    mark     TEXT   NOT NULL,
    job      BIGINT NOT NULL,
    since    BIGINT NOT NULL,
    document TEXT   NOT NULL,
    entries  BIGINT NOT NULL,
    format   BIGINT NOT NULL
);

-- The decisions about bundles with a row, and their reasons. Entry n of a bundle is in the slot of the
-- entries that it replaces. Times are Unix nanoseconds.
CREATE TABLE history (
    bundle  TEXT   NOT NULL,
    slot    BIGINT NOT NULL,
    n       BIGINT NOT NULL,
    version BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    phase   TEXT   NOT NULL,
    attempt BIGINT NOT NULL,
    job     BIGINT NOT NULL,
    reason  TEXT   NOT NULL,
    PRIMARY KEY (bundle, slot)
);

-- The bundles without a row, the time of their last decision, and their histories, packed.
CREATE TABLE forgotten (
    bundle  TEXT   NOT NULL PRIMARY KEY,
    at      BIGINT NOT NULL,
    entries TEXT   NOT NULL
);
CREATE INDEX forgotten_by_age ON forgotten (at);
