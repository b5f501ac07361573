//! The root's space: of an object its bytes, of a tree its files' bytes one behind the other in the descriptor's order. What a
//! holder has of a root is told by ranges of it, so that one list tells of thousands of small files.
//!
//! Each entry that is a file has as many bytes as it says, also a further name of one that came before, one whose bytes are
//! in the descriptor, and one that was left out. The descriptor's own bytes are not in it.

use towpath_content::Oid;
use towpath_content::tree::{Entry, Kind};

/// Place of a tree's descriptor among what is wanted of it: behind the root's space.
pub const DESCRIPTOR: u64 = 1 << 61;

/// Name under which a store announces what is here of the tree `root` while that comes. Nobody else's object has it.
pub fn space_of(root: &Oid) -> Oid {
    Oid::Live(*Oid::of(&[b"towpath root's space ", &root.to_bytes()[..]].concat()).digest())
}

/// The place where the next file of a tree begins.
#[derive(Debug, Default)]
pub struct TreePosition(u64);

impl TreePosition {
    /// The place of an entry, if it is a file. Sizes are a stranger's word: those beyond any object's end at the space's end.
    pub fn pass(&mut self, entry: &Entry) -> Option<u64> {
        let Kind::File { size, .. } = entry.kind else { return None };
        let begin = self.0;
        self.0 = begin.saturating_add(size).min(DESCRIPTOR);
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::tree::Metadata;

    use super::*;

    #[test]
    fn files_lie_one_behind_the_other_and_nothing_else_takes_room() {
        let mut position = TreePosition::default();
        let file = |size| Kind::File { size, oid: None, extents: None };
        let rows = [
            (file(5), Some(0)),
            (Kind::Directory, None),
            (file(0), Some(5)),
            (Kind::Symlink { target: b"a".to_vec() }, None),
            (file(7), Some(5)),
            (file(u64::MAX), Some(12)),
            (file(1), Some(DESCRIPTOR)),
            (file(1), Some(DESCRIPTOR)),
        ];
        for (kind, expected) in rows {
            let entry = Entry { name: b"a".to_vec(), kind, metadata: Metadata::default(), hard_link: None };
            assert_eq!(position.pass(&entry), expected, "{:?}", entry.kind);
        }
    }

    #[test]
    fn each_root_has_a_space_of_its_own_name() {
        let roots = [Oid::of(b"a"), Oid::of(b"b"), Oid::Live([1; 32]), Oid::Blake3([1; 32])];
        let mut names: Vec<Oid> = roots.iter().map(space_of).chain(roots).collect();
        names.sort_by_key(|name| name.to_bytes());
        names.dedup();
        assert_eq!(names.len(), 8);
    }
}
