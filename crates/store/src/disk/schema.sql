CREATE TABLE dirs (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE files (
    dir INTEGER NOT NULL,
    name BLOB NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    oid BLOB NOT NULL,
    PRIMARY KEY (dir, name)
) WITHOUT ROWID;
CREATE INDEX files_by_oid ON files (oid);
CREATE TABLE objects (
    oid BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    owned INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    name BLOB NOT NULL,
    mode INTEGER,
    modified_s INTEGER,
    modified_ns INTEGER,
    used INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE piece_values (
    oid BLOB PRIMARY KEY,
    vals BLOB NOT NULL
);
CREATE TABLE bindings (
    live BLOB PRIMARY KEY,
    oid BLOB NOT NULL,
    size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX bindings_by_oid ON bindings (oid);
CREATE TABLE leases (
    id INTEGER PRIMARY KEY,
    oid BLOB NOT NULL UNIQUE,
    content BLOB,
    size INTEGER,
    secret BLOB NOT NULL,
    path BLOB,
    kind INTEGER NOT NULL,
    name BLOB NOT NULL,
    mode INTEGER,
    modified_s INTEGER,
    modified_ns INTEGER,
    created INTEGER NOT NULL,
    session BLOB,
    owner TEXT
);
CREATE INDEX leases_by_content ON leases (content);
CREATE TABLE chunks (
    hash BLOB PRIMARY KEY,
    len INTEGER NOT NULL,
    puts INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE boundaries (
    oid BLOB PRIMARY KEY,
    ends BLOB NOT NULL
) WITHOUT ROWID;
