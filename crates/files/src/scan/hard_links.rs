//! Names of one inode.

use std::collections::HashMap;

use towpath_content::tree::Kind;

use super::found::Found;

/// Numbers groups of hard links 0, 1, 2… in the order they are met, over as many scans as it is
/// given to. A group is forgotten when all its names were met; those of which other names lie
/// elsewhere are remembered.
#[derive(Debug, Default)]
pub struct HardLinks {
    /// By device and inode.
    open: HashMap<(u64, u64), LinkGroup>,
    next: u64,
    /// Links are followed, so that a name may be met more often than it is there.
    follows: bool,
}

#[derive(Debug)]
struct LinkGroup {
    number: u64,
    /// Names not met yet.
    missing: u64,
}

impl HardLinks {
    /// For scans that follow symbolic links: no group is ever forgotten.
    pub fn following() -> Self {
        Self { follows: true, ..Self::default() }
    }

    /// Gives `found` the number of its group, if it has other names and is no directory.
    pub fn number(&mut self, found: &mut Found) {
        if found.links < 2 || found.entry.kind == Kind::Directory {
            return;
        }
        let inode = (found.stamp.device, found.stamp.inode);
        let next = self.next;
        let group = self.open.entry(inode).or_insert(LinkGroup { number: next, missing: found.links });
        found.entry.hard_link = Some(group.number);
        self.next = next.max(group.number + 1);
        group.missing = group.missing.saturating_sub(1);
        if group.missing == 0 && !self.follows {
            self.open.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{ScanOptions, look};
    use std::fs;

    #[test]
    fn a_group_is_forgotten_with_its_last_name_and_numbers_go_on() {
        let tmp = tempfile::tempdir().unwrap();
        for (first, second) in [("a", "b"), ("c", "d")] {
            fs::write(tmp.path().join(first), b"").unwrap();
            fs::hard_link(tmp.path().join(first), tmp.path().join(second)).unwrap();
        }
        let mut links = HardLinks::default();
        let mut number = |name: &str| {
            let mut found = look(&tmp.path().join(name), &ScanOptions::default()).unwrap();
            links.number(&mut found);
            (found.entry.hard_link, links.open.len())
        };
        assert_eq!([number("a"), number("c")], [(Some(0), 1), (Some(1), 2)]);
        assert_eq!([number("d"), number("b")], [(Some(1), 1), (Some(0), 0)]);
        assert_eq!(number("a"), (Some(2), 1));
        fs::write(tmp.path().join("single"), b"").unwrap();
        assert_eq!(number("single").0, None);
        assert_eq!(number(".").0, None);
    }
}
