-- From version 1 to 2. What is there counts as used now, so that nothing is evicted for want of a date.
ALTER TABLE dirs ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
UPDATE dirs SET used = unixepoch();
ALTER TABLE objects ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
UPDATE objects SET used = unixepoch();
ALTER TABLE leases ADD COLUMN session BLOB;
ALTER TABLE leases ADD COLUMN owner TEXT;
