-- +goose Up
-- The cost of each attempt whose job has started and ended, also after its bundle's row is gone, for as long as its
-- history. Times are Unix nanoseconds, and durations nanoseconds. cpus, gpus and memory are what the bundle requested.
-- owner is a user's id; owner_name and owner_groups are empty if the server did not tell them.
-- gpu_busy is the mean use of the GPUs in parts of a million, and -1 if it was not measured.
CREATE TABLE charges (
    bundle          TEXT   NOT NULL,
    generation      BIGINT NOT NULL,
    attempt         BIGINT NOT NULL,
    owner           TEXT   NOT NULL,
    owner_name      TEXT   NOT NULL,
    owner_groups    TEXT   NOT NULL,
    queue           TEXT   NOT NULL,
    job             BIGINT NOT NULL,
    node            TEXT   NOT NULL,
    submitted       BIGINT NOT NULL,
    started         BIGINT NOT NULL,
    ended           BIGINT NOT NULL,
    staging         BIGINT NOT NULL,
    command         BIGINT NOT NULL,
    cpus            BIGINT NOT NULL,
    gpus            BIGINT NOT NULL,
    memory          BIGINT NOT NULL,
    cpu_time        BIGINT NOT NULL,
    memory_peak     BIGINT NOT NULL,
    gpu_busy        BIGINT NOT NULL,
    gpu_memory_peak BIGINT NOT NULL,
    cause           TEXT   NOT NULL,
    PRIMARY KEY (bundle, generation)
);
CREATE INDEX charges_by_end ON charges (ended);
