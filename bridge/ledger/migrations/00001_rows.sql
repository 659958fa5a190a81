-- +goose Up
CREATE TABLE bridge (
    id TEXT NOT NULL PRIMARY KEY
);

-- One row a bundle. The columns beside document are there for people and for
-- looking things up; document is the row.
CREATE TABLE rows (
    bundle   TEXT    NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    queue    TEXT    NOT NULL,
    phase    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    mark     TEXT    NOT NULL,
    job      INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    document TEXT    NOT NULL
);

-- +goose Down
DROP TABLE rows;
DROP TABLE bridge;
