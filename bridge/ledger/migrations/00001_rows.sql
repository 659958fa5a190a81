-- +goose Up
CREATE TABLE bridge (
    id TEXT NOT NULL PRIMARY KEY
);

-- One row a bundle. The columns beside document are there for people and for
-- looking things up; document is the row.
CREATE TABLE rows (
    bundle   TEXT    NOT NULL PRIMARY KEY,
    version  BIGINT  NOT NULL,
    queue    TEXT    NOT NULL,
    phase    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    attempt  BIGINT  NOT NULL,
    mark     TEXT    NOT NULL,
    job      BIGINT  NOT NULL,
    since    BIGINT  NOT NULL,
    document TEXT    NOT NULL
);

-- +goose Down
DROP TABLE rows;
DROP TABLE bridge;
