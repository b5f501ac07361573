//! In which order events may come: one root, names sorted within each directory, every directory
//! ended, nothing after the end of the root.

use super::check::{TreeError, check_text, ensure, within};
use super::entry::*;

/// Follows one depth-first walk. Holds one name for each open directory.
#[derive(Debug, Default, Clone)]
pub(super) struct Walk {
    /// For each open directory its last name, empty before the first.
    open: Vec<Vec<u8>>,
    entries: u64,
}

impl Walk {
    /// Refuses an event that may not come now; changes nothing.
    pub(super) fn check(&self, event: &Event) -> Result<(), TreeError> {
        ensure(!self.is_done(), "tree", "goes on after the end of its root")?;
        let (entry, is_directory) = match event {
            Event::Enter(entry) => (entry, true),
            Event::Leaf(entry) => (entry, false),
            Event::Leave => return ensure(!self.open.is_empty(), "tree", "ends before it begins"),
        };
        ensure((entry.kind == Kind::Directory) == is_directory, "entry", "is not of its event's kind")?;
        within("entries", self.entries + 1, MAX_ENTRIES)?;
        within("depth", self.open.len() as u64, MAX_DEPTH as u64)?;
        self.check_name(&entry.name)
    }

    /// Notes an event that was checked.
    pub(super) fn apply(&mut self, event: &Event) {
        if let Event::Enter(entry) | Event::Leaf(entry) = event {
            self.entries += 1;
            if let Some(last) = self.open.last_mut() {
                last.clone_from(&entry.name);
            }
        }
        match event {
            Event::Enter(_) => self.open.push(Vec::new()),
            Event::Leaf(_) => {}
            Event::Leave => drop(self.open.pop()),
        }
    }

    /// Checks and notes an event.
    pub(super) fn step(&mut self, event: &Event) -> Result<(), TreeError> {
        self.check(event).map(|()| self.apply(event))
    }

    /// True before the first event.
    pub(super) const fn is_new(&self) -> bool {
        self.entries == 0
    }

    /// True once the root has ended.
    pub(super) const fn is_done(&self) -> bool {
        self.entries > 0 && self.open.is_empty()
    }

    fn check_name(&self, name: &[u8]) -> Result<(), TreeError> {
        let Some(last) = self.open.last() else {
            return ensure(name.is_empty(), "name", "of the root is not empty");
        };
        ensure(!name.is_empty(), "name", "is empty")?;
        check_text("name", name, MAX_NAME)?;
        ensure(!name.contains(&b'/'), "name", "contains '/'")?;
        ensure(name != b"." && name != b"..", "name", "is '.' or '..'")?;
        ensure(last.as_slice() < name, "name", "is not in order")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_to_their_limit() {
        let root = || {
            Event::Enter(Entry {
                name: Vec::new(),
                kind: Kind::Directory,
                metadata: Metadata::default(),
                hard_link: None,
            })
        };
        let leaf = |name: &[u8]| {
            Event::Leaf(Entry {
                name: name.to_vec(),
                kind: Kind::Fifo,
                metadata: Metadata::default(),
                hard_link: None,
            })
        };
        let mut walk = Walk::default();
        walk.step(&root()).unwrap();
        walk.entries = MAX_ENTRIES - 1;
        walk.step(&leaf(b"last")).unwrap();
        let refused = walk.step(&leaf(b"one too many"));
        let (found, limit) = (MAX_ENTRIES + 1, MAX_ENTRIES);
        assert_eq!(refused, Err(TreeError::TooLarge { field: "entries", found, limit }));
        walk.step(&Event::Leave).unwrap();
    }
}
