-- Whoever knows a user's address can let the server mail a code for a new password. That must not end the code that the operator has
-- given to the user. A user has one code of each kind at most.
-- +goose Up
ALTER TABLE password_resets RENAME TO password_resets_of_one_kind;
CREATE TABLE password_resets (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- 1 for a code that the server has mailed, 0 for one of the operator
    mailed  BIGINT NOT NULL,
    code    TEXT NOT NULL UNIQUE,
    expires BIGINT NOT NULL,
    PRIMARY KEY (user_id, mailed)
);
INSERT INTO password_resets (user_id, mailed, code, expires)
    SELECT user_id, 0, code, expires FROM password_resets_of_one_kind;
DROP TABLE password_resets_of_one_kind;
