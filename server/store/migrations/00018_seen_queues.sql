-- The last check-ins of queues, so that a server that starts shows those that are away. The server rewrites all of it.
-- +goose Up
CREATE TABLE seen_queues (
    user_id    TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    group_uuid TEXT NOT NULL,
    check_in   TEXT NOT NULL,
    seen       BIGINT NOT NULL,
    PRIMARY KEY (user_id, worker_id)
);
