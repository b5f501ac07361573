//! Which names are names of one inode.

use std::collections::HashMap;

use towpath_content::tree::Kind;

use super::found::Found;

/// Numbers groups of hard links 0, 1, 2… in the order they are met, over as many scans as it is
/// given to. A group is forgotten when all its names were met; those of which other names lie
/// elsewhere are remembered.
#[derive(Debug, Default)]
pub struct HardLinks {
    /// By device and inode.
    open: HashMap<(u64, u64), Group>,
    next: u64,
}

#[derive(Debug)]
struct Group {
    number: u64,
    /// Names not met yet.
    missing: u64,
}

impl HardLinks {
    /// Gives `found` the number of its group, if it has other names and is no directory.
    pub fn number(&mut self, found: &mut Found) {
        if found.links < 2 || found.entry.kind == Kind::Directory {
            return;
        }
        let inode = (found.stamp.device, found.stamp.inode);
        let next = self.next;
        let group = self.open.entry(inode).or_insert(Group { number: next, missing: found.links });
        found.entry.hard_link = Some(group.number);
        self.next = next.max(group.number + 1);
        group.missing -= 1;
        if group.missing == 0 {
            self.open.remove(&inode);
        }
    }
}
