-- +goose Up
ALTER TABLE bridge ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;

-- How many entries the bundle's history has had.
ALTER TABLE rows ADD COLUMN entries BIGINT NOT NULL DEFAULT 0;

-- What was decided, and why; it outlives the row. Entry n of a bundle lies in
-- the slot that it shares with those that it replaces. Times are Unix
-- nanoseconds.
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

-- The bundles that have a history and no row any more, and since when.
CREATE TABLE forgotten (
    bundle TEXT   NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL
);
CREATE INDEX forgotten_by_age ON forgotten (at);

-- The history of a row that is there already begins with what it is.
INSERT INTO history (bundle, slot, n, version, at, phase, attempt, job, reason)
SELECT bundle, 1, 1, version, since * 1000000000, phase, attempt, job, reason FROM rows;
UPDATE rows SET entries = 1;

-- +goose Down
DROP TABLE forgotten;
DROP TABLE history;
ALTER TABLE rows DROP COLUMN entries;
ALTER TABLE bridge DROP COLUMN generation;
