-- A session is one sign-in of a program. Its grants are the pairs of tokens that the program has got since.
-- +goose Up
CREATE TABLE sessions (
    id      TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    client  TEXT NOT NULL,
    -- the program as at the sign-in, and the address of the last use
    program TEXT NOT NULL,
    address TEXT NOT NULL,
    made    BIGINT NOT NULL,
    used    BIGINT NOT NULL
);
CREATE INDEX sessions_by_user ON sessions (user_id);
-- An access token is valid for an hour, 3.6e9 microseconds.
INSERT INTO sessions (id, user_id, client, program, address, made, used)
    SELECT substr(access, 1, 12), user_id, client, '', '', access_expires - 3600000000, access_expires - 3600000000 FROM grants;

DROP INDEX grants_by_user;
ALTER TABLE grants RENAME TO grants_without_sessions;
CREATE TABLE grants (
    access          TEXT PRIMARY KEY,
    refresh         TEXT NOT NULL UNIQUE,
    session_id      TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    access_expires  BIGINT NOT NULL,
    refresh_expires BIGINT NOT NULL,
    -- the first use of the refresh token; 0 for none
    used            BIGINT NOT NULL DEFAULT 0
);
INSERT INTO grants (access, refresh, session_id, access_expires, refresh_expires)
    SELECT access, refresh, substr(access, 1, 12), access_expires, refresh_expires FROM grants_without_sessions;
DROP TABLE grants_without_sessions;
CREATE INDEX grants_by_session ON grants (session_id);

-- How a user's programs are known again when they sign in: by the network that they call from, or by a device token.
CREATE TABLE known_clients (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    mark    TEXT NOT NULL,
    seen    BIGINT NOT NULL,
    PRIMARY KEY (user_id, mark)
);

-- One-time codes with which users set a new password; only their hashes are kept. A user has one at most.
CREATE TABLE password_resets (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    code    TEXT NOT NULL UNIQUE,
    expires BIGINT NOT NULL
);
