//! Runs: sorted batches of entries, merged as they grow in number.
//!
//! A batch is written as one new run: a row for each bucket of hashes, next to each other in the
//! file. Rows of a table sorted by hash would each fall into a page of their own instead, some four
//! KiB written for a chunk once there are ten million. Runs of like size are merged, so there
//! are few, and an entry is written again about as often as the index doubles.
//!
//! A merge moves one group of buckets after the other, each in a transaction of its own: look-ups
//! between find every entry in exactly one run, and a merge that is cut short leaves nothing to repair.

use rusqlite::{Connection, OptionalExtension, params};

use super::entry::{self, BUCKET_BITS, ChunkEntry, bucket_of};

/// Buckets that one transaction of a merge moves: some 14 MiB at the default limit.
const BUCKETS_AT_ONCE: u64 = 256;
/// More runs than this are merged, however different their sizes are.
const MAX_RUNS: usize = 12;

/// A run on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRun {
    pub(super) id: u64,
    pub(super) entries: u64,
}

const fn key(run: u64, bucket: u64) -> u64 {
    run << BUCKET_BITS | bucket
}

/// All runs, oldest first.
pub(super) fn all(conn: &Connection) -> rusqlite::Result<Vec<ChunkRun>> {
    let mut select = conn.prepare_cached("SELECT id, entries FROM runs ORDER BY id")?;
    let runs = select.query_map([], |row| Ok(ChunkRun { id: row.get(0)?, entries: row.get(1)? }))?;
    runs.collect()
}

/// Writes entries as a new run.
pub(super) fn add(conn: &Connection, mut entries: Vec<ChunkEntry>) -> rusqlite::Result<()> {
    entry::tidy(&mut entries);
    let run = begin(conn)?;
    entries
        .chunk_by(|a, b| bucket_of(a.prefix) == bucket_of(b.prefix))
        .try_for_each(|bucket| put(conn, run, bucket))
}

fn begin(conn: &Connection) -> rusqlite::Result<u64> {
    conn.prepare_cached("INSERT INTO runs (entries) VALUES (0)")?.insert([]).map(|id| id as u64)
}

/// Writes the entries of one bucket, at least one, and counts them.
fn put(conn: &Connection, run: u64, entries: &[ChunkEntry]) -> rusqlite::Result<()> {
    let Some(first) = entries.first() else { return Ok(()) };
    let mut insert = conn.prepare_cached("INSERT INTO places VALUES (?, ?)")?;
    insert.execute(params![key(run, bucket_of(first.prefix)), entry::encode(entries)])?;
    let mut count = conn.prepare_cached("UPDATE runs SET entries = entries + ?2 WHERE id = ?1")?;
    count.execute(params![run, entries.len()]).map(drop)
}

/// Looks a sorted list of hashes up in one run; `found` gets each with its position in the list.
pub(super) fn find(
    conn: &Connection,
    run: &ChunkRun,
    sorted: &[(u64, usize)],
    found: &mut dyn FnMut(usize, ChunkEntry),
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached("SELECT entries FROM places WHERE key = ?")?;
    for wanted in sorted.chunk_by(|a, b| bucket_of(a.0) == bucket_of(b.0)) {
        let Some((first, _)) = wanted.first() else { continue };
        let mut rows = select.query([key(run.id, bucket_of(*first))])?;
        if let Some(row) = rows.next()? {
            let bytes = row.get_ref(0)?.as_blob()?;
            for (prefix, position) in wanted {
                entry::find(bytes, *prefix).for_each(|entry| found(*position, entry));
            }
        }
    }
    Ok(())
}

/// Runs to merge now: the newest ones, as far back as a run is not much larger than
/// those after it together. `garbage` says that there is so much of it that all are gone through.
pub(super) fn choose(runs: &[ChunkRun], garbage: bool) -> &[ChunkRun] {
    if garbage {
        return runs;
    }
    let (mut from, mut sum) = (runs.len(), 0u64);
    for (at, run) in runs.iter().enumerate().rev() {
        let is_alike = run.entries <= sum.saturating_mul(2);
        if from < runs.len() && !is_alike && at < MAX_RUNS {
            break;
        }
        (from, sum) = (at, sum + run.entries);
    }
    if runs.len() - from > 1 { &runs[from..] } else { &[] }
}

/// Merges runs into a new one, leaving out what `is_live` says is of no more use.
pub(super) fn merge(
    conn: &mut Connection,
    sources: &[ChunkRun],
    is_live: &dyn Fn(u64) -> bool,
) -> rusqlite::Result<()> {
    let mut target = None;
    for from in (0..1u64 << BUCKET_BITS).step_by(BUCKETS_AT_ONCE as usize) {
        let t = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let run = match target {
            Some(run) => run,
            None => *target.insert(begin(&t)?),
        };
        for bucket in from..from + BUCKETS_AT_ONCE {
            let mut entries = Vec::new();
            for source in sources {
                take(&t, source, bucket, &mut entries)?;
            }
            entries.retain(|entry| is_live(entry.cut));
            entry::tidy(&mut entries);
            put(&t, run, &entries)?;
        }
        t.commit()?;
    }
    let t = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for source in sources {
        t.prepare_cached("DELETE FROM runs WHERE id = ?")?.execute([source.id])?;
    }
    t.commit()
}

/// Takes the entries of one bucket out of a run.
fn take(
    conn: &Connection,
    run: &ChunkRun,
    bucket: u64,
    entries: &mut Vec<ChunkEntry>,
) -> rusqlite::Result<()> {
    let before = entries.len();
    let mut select = conn.prepare_cached("SELECT entries FROM places WHERE key = ?")?;
    let decode = |row: &rusqlite::Row<'_>| {
        entries.extend(entry::decode(row.get_ref(0)?.as_blob()?));
        Ok(())
    };
    if select.query_row([key(run.id, bucket)], decode).optional()?.is_none() {
        return Ok(());
    }
    conn.prepare_cached("DELETE FROM places WHERE key = ?")?.execute([key(run.id, bucket)])?;
    let mut count = conn.prepare_cached("UPDATE runs SET entries = entries - ?2 WHERE id = ?1")?;
    count.execute(params![run.id, entries.len() - before]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(sizes: &[u64]) -> Vec<ChunkRun> {
        (1..).zip(sizes).map(|(id, entries)| ChunkRun { id, entries: *entries }).collect()
    }

    #[test]
    fn runs_of_like_size_are_merged_and_a_large_one_is_left_alone() {
        let cases: [(&[u64], bool, usize); 8] = [
            (&[], false, 0),
            (&[5], false, 0),
            (&[5, 5], false, 2),
            (&[100, 5], false, 0),
            (&[100, 5, 5], false, 2),
            (&[100, 30, 10, 5], false, 3),
            (&[100, 5], true, 2),
            (&[5], true, 1),
        ];
        for (sizes, garbage, expected) in cases {
            assert_eq!(choose(&runs(sizes), garbage).len(), expected, "{sizes:?}");
        }
    }

    #[test]
    fn there_are_never_many_runs() {
        let sizes: Vec<u64> = (0..30).rev().map(|n| 3u64.pow(n)).collect();
        let runs = runs(&sizes);
        assert_eq!(runs.len() - choose(&runs, false).len(), MAX_RUNS);
    }
}
