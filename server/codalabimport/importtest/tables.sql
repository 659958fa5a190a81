-- The columns of CodaLab's tables that the import reads.
CREATE TABLE `user` (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, user_id VARCHAR(63), user_name VARCHAR(63), email VARCHAR(254) DEFAULT '',
    notifications INT DEFAULT 2, last_login DATETIME, is_active BOOL DEFAULT 1, first_name VARCHAR(30), last_name VARCHAR(30),
    date_joined DATETIME DEFAULT '2019-05-01 10:00:00', is_verified BOOL DEFAULT 1, password VARCHAR(128), affiliation VARCHAR(255), url VARCHAR(255), avatar_id VARCHAR(63),
    time_quota FLOAT DEFAULT 3153600000, parallel_run_quota INT DEFAULT 3, time_used FLOAT DEFAULT 0, disk_quota FLOAT DEFAULT 107374182400
);
CREATE TABLE `group` (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, uuid VARCHAR(63), name VARCHAR(255), user_defined BOOL, owner_id VARCHAR(255)
);
CREATE TABLE user_group (id BIGINT AUTO_INCREMENT PRIMARY KEY, group_uuid VARCHAR(63), user_id VARCHAR(63), is_admin BOOL);
CREATE TABLE worksheet (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, uuid VARCHAR(63), name VARCHAR(255), owner_id VARCHAR(255), title VARCHAR(255),
    frozen DATETIME, is_anonymous BOOL DEFAULT 0, date_created DATETIME, date_last_modified DATETIME
);
CREATE TABLE worksheet_item (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, worksheet_uuid VARCHAR(63), bundle_uuid VARCHAR(63), subworksheet_uuid VARCHAR(63),
    value TEXT, type VARCHAR(20), sort_key INT
);
CREATE TABLE worksheet_tag (id BIGINT AUTO_INCREMENT PRIMARY KEY, worksheet_uuid VARCHAR(63), tag VARCHAR(63));
CREATE TABLE group_object_permission (id BIGINT AUTO_INCREMENT PRIMARY KEY, group_uuid VARCHAR(63), object_uuid VARCHAR(63), permission INT);
CREATE TABLE bundle (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, uuid VARCHAR(63), bundle_type VARCHAR(63), command TEXT, state VARCHAR(63), owner_id VARCHAR(255),
    frozen DATETIME, is_anonymous BOOL DEFAULT 0, storage_type VARCHAR(20)
);
CREATE TABLE bundle_metadata (id BIGINT AUTO_INCREMENT PRIMARY KEY, bundle_uuid VARCHAR(63), metadata_key VARCHAR(63), metadata_value TEXT);
CREATE TABLE bundle_dependency (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, child_uuid VARCHAR(63), child_path TEXT, parent_uuid VARCHAR(63), parent_path TEXT
);
CREATE TABLE group_bundle_permission (id BIGINT AUTO_INCREMENT PRIMARY KEY, group_uuid VARCHAR(63), object_uuid VARCHAR(63), permission INT);
CREATE TABLE bundle_store (id BIGINT AUTO_INCREMENT PRIMARY KEY, uuid VARCHAR(63), name VARCHAR(255), storage_type VARCHAR(255));
CREATE TABLE bundle_location (id BIGINT AUTO_INCREMENT PRIMARY KEY, bundle_uuid VARCHAR(63), bundle_store_uuid VARCHAR(63));
