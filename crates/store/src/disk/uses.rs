//! Times of last use, noted coarsely: in memory first, and once a minute in the index.
//!
//! Owned objects are noted each, files that are referred to by their folder. What was noted is
//! lost when the process is killed; then something is evicted a little early.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use towpath_content::Oid;

use super::index::IndexOutcome;
use towpath_content::lock::lock;

/// Time that notes are kept before they are written down.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Notes that are kept at most.
const MOST: usize = 4096;

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Object or file that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Used {
    /// An owned object.
    Object(Oid),
    /// A folder, by its number.
    Dir(i64),
}

/// Times of last use, in seconds since 1970.
pub(crate) type UseNotes = HashMap<Used, u64>;

/// The notes that were not written down yet.
#[derive(Debug)]
pub(crate) struct Uses {
    state: Mutex<(UseNotes, Instant)>,
}

impl Uses {
    /// No notes yet.
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new((UseNotes::new(), Instant::now())) }
    }

    /// Notes a use; returns the notes when it is time to write them down.
    pub(crate) fn note(&self, used: Used) -> Option<UseNotes> {
        let mut state = lock(&self.state);
        state.0.insert(used, now());
        let is_due = state.0.len() >= MOST || state.1.elapsed() >= WAIT_LIMIT;
        is_due.then(|| {
            state.1 = Instant::now();
            std::mem::take(&mut state.0)
        })
    }

    /// All notes, to be written down now.
    pub(crate) fn take(&self) -> UseNotes {
        std::mem::take(&mut lock(&self.state).0)
    }
}

/// Writes notes down.
pub(crate) fn write(conn: &Connection, notes: &UseNotes) -> IndexOutcome<()> {
    let mut object = conn.prepare_cached("UPDATE objects SET used = max(used, ?2) WHERE oid = ?1")?;
    let mut dir = conn.prepare_cached("UPDATE dirs SET used = max(used, ?2) WHERE id = ?1")?;
    for (used, when) in notes {
        match used {
            Used::Object(oid) => object.execute(params![oid.to_bytes(), when])?,
            Used::Dir(number) => dir.execute(params![number, when])?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_due_when_there_are_many() {
        let uses = Uses::new();
        assert!((1..MOST as i64).all(|n| uses.note(Used::Dir(n)).is_none()));
        assert!(uses.note(Used::Dir(1)).is_none(), "one note a thing");
        assert_eq!(uses.note(Used::Dir(0)).map(|notes| notes.len()), Some(MOST));
        assert!(uses.take().is_empty());
    }
}
