-- From version 2 to 3.
CREATE TABLE boundaries (
    oid BLOB PRIMARY KEY,
    ends BLOB NOT NULL
) WITHOUT ROWID;
