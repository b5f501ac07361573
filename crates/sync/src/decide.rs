//! Decision on one entry: a pure function of the entry at the source, what the
//! destination has in its place, and the options. The words for it are rsync's (`%i` in its
//! manual), so that people and scripts can read them.

use towpath_api::copy::{Check, CopyOptions};
use towpath_content::tree::{Entry, Kind, Time};
use towpath_files::metadata::Differences;
use towpath_files::{Found, Stamp};

use EntryAction::{Compare, LeftAlone, Make, Same, Touch};

/// Action for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryAction {
    /// Nothing: it is as it should be.
    Same,
    /// Nothing: an option leaves it alone.
    LeftAlone,
    /// Its metadata alone is to be changed.
    Touch(Changes),
    /// It is to be made, or its content replaced.
    Make(Changes),
    /// A file whose content has to be compared first. If it proves the same,
    /// these changes of metadata are left to make.
    Compare(Changes),
}

/// Differences, in the order of rsync's letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// There is nothing at the destination.
    pub new: bool,
    /// The content (of a file, only where contents were compared), a link's target or a device's
    /// number.
    pub content: bool,
    /// The size of a file.
    pub size: bool,
    /// The time of last modification.
    pub time: bool,
    /// Permission bits.
    pub perms: bool,
    /// The user.
    pub owner: bool,
    /// The group.
    pub group: bool,
    /// The access control list.
    pub acl: bool,
    /// Other extended attributes.
    pub xattrs: bool,
}

impl Changes {
    const NEW: Self = Self {
        new: true,
        content: false,
        size: false,
        time: false,
        perms: false,
        owner: false,
        group: false,
        acl: false,
        xattrs: false,
    };

    /// True if metadata alone differs.
    pub const fn is_metadata(&self) -> bool {
        self.time || self.perms || self.owner || self.group || self.acl || self.xattrs
    }

    /// rsync's eleven letters. `update` is its first one (`<`, `>`, `c`, `h`, `.`); `times` is true
    /// if times are carried over.
    pub fn letters(&self, update: u8, kind: &Kind, times: bool) -> [u8; 11] {
        let mut letters = *b"           ";
        letters[0] = update;
        letters[1] = kind_letter(kind);
        if self.new {
            letters[2..].fill(b'+');
            return letters;
        }
        let time = if times { b't' } else { b'T' };
        let flags = [
            (self.content, b'c'),
            (self.size, b's'),
            (self.time, time),
            (self.perms, b'p'),
            (self.owner, b'o'),
            (self.group, b'g'),
            (false, b'u'),
            (self.acl, b'a'),
            (self.xattrs, b'x'),
        ];
        if flags.iter().all(|(set, _)| !set) && update == b'.' {
            return letters;
        }
        for (at, (set, letter)) in flags.into_iter().enumerate() {
            letters[2 + at] = if set { letter } else { b'.' };
        }
        letters
    }
}

fn kind_letter(kind: &Kind) -> u8 {
    match kind {
        Kind::File { .. } => b'f',
        Kind::Directory => b'd',
        Kind::Symlink { .. } => b'L',
        Kind::CharDevice { .. } | Kind::BlockDevice { .. } => b'D',
        Kind::Fifo | Kind::Socket => b'S',
    }
}

/// Decides about `new`. `metadata` are the differences of its metadata from that of `old`, as far as this
/// process would change them.
pub fn decide(new: &Entry, old: Option<&Found>, metadata: Differences, options: &CopyOptions) -> EntryAction {
    let is_dir = new.kind == Kind::Directory;
    let Some(old) = old else {
        return if options.existing { LeftAlone } else { Make(Changes::NEW) };
    };
    if options.ignore_existing && !(is_dir && old.entry.kind == Kind::Directory) {
        return LeftAlone;
    }
    if !same_kind(&new.kind, &old.entry.kind) {
        return Make(Changes::NEW);
    }
    let changes = Changes::from(metadata);
    match (&new.kind, &old.entry.kind) {
        (Kind::File { size, .. }, Kind::File { .. }) => {
            if options.update && is_newer(&old.stamp, new) {
                return LeftAlone;
            }
            decide_file(*size, &old.stamp, new.metadata.modified, changes, options)
        }
        (Kind::Directory, _) => touch(changes),
        (new, old) if new == old => touch(changes),
        _ => Make(Changes { content: true, time: changes.time || !options.preserve.times, ..changes }),
    }
}

fn decide_file(size: u64, old: &Stamp, time: Time, changes: Changes, options: &CopyOptions) -> EntryAction {
    let same_size = size == old.size;
    let is_same = match options.check {
        Check::Quick => same_size && time == old.modified,
        Check::SizeOnly => same_size,
        Check::Never => false,
        Check::Content if same_size => return Compare(changes),
        Check::Content => false,
    };
    match is_same {
        true => touch(changes),
        false => Make(Changes {
            content: options.check == Check::Content,
            size: !same_size,
            time: changes.time || !options.preserve.times,
            ..changes
        }),
    }
}

fn touch(changes: Changes) -> EntryAction {
    if changes.is_metadata() { Touch(changes) } else { Same }
}

fn is_newer(old: &Stamp, new: &Entry) -> bool {
    let (old, new) = (old.modified, new.metadata.modified);
    (old.seconds, old.nanos) > (new.seconds, new.nanos)
}

/// True if one can be changed into the other without being removed first.
fn same_kind(new: &Kind, old: &Kind) -> bool {
    std::mem::discriminant(new) == std::mem::discriminant(old)
}

impl From<Differences> for Changes {
    fn from(differences: Differences) -> Self {
        let Differences { mode, time, user, group, acls, xattrs } = differences;
        Self { time, perms: mode, owner: user, group, acl: acls, xattrs, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::tree::Metadata;
    use towpath_files::Policy;
    use towpath_files::metadata::differences;

    fn file(size: u64, seconds: i64) -> Entry {
        Entry {
            name: b"f".to_vec(),
            kind: Kind::File { size, oid: None, extents: None },
            metadata: Metadata { mode: 0o644, modified: Time { seconds, nanos: 0 }, ..Metadata::default() },
            hard_link: None,
        }
    }

    fn found(entry: Entry) -> Found {
        let size = if let Kind::File { size, .. } = entry.kind { size } else { 0 };
        let stamp = Stamp { size, modified: entry.metadata.modified, ..Stamp::default() };
        Found { entry, stamp, links: 1, looks_sparse: false, file: None, incomplete: None }
    }

    fn decided(new: &Entry, old: Entry, options: &CopyOptions) -> EntryAction {
        let policy = Policy { owner: false, group: false, ..Policy::archive() };
        let differences = differences(&new.kind, &new.metadata, &old.metadata, &policy);
        decide(new, Some(&found(old)), differences, options)
    }

    #[test]
    fn the_quick_check_goes_by_size_and_time() {
        let options = CopyOptions::default();
        assert_eq!(decided(&file(5, 7), file(5, 7), &options), Same);
        let Make(changes) = decided(&file(6, 7), file(5, 7), &options) else { panic!("not made") };
        assert_eq!(&changes.letters(b'>', &file(6, 7).kind, true), b">f.s.......");
        let Make(changes) = decided(&file(5, 8), file(5, 7), &options) else { panic!("not made") };
        assert_eq!(&changes.letters(b'>', &file(5, 8).kind, true), b">f..t......");
    }

    #[test]
    fn the_other_checks() {
        let check = |check| CopyOptions { check, ..CopyOptions::default() };
        assert!(matches!(decided(&file(5, 8), file(5, 7), &check(Check::SizeOnly)), Touch(_)));
        assert!(matches!(decided(&file(5, 7), file(5, 7), &check(Check::Never)), Make(_)));
        assert!(matches!(decided(&file(5, 7), file(5, 7), &check(Check::Content)), Compare(_)));
        assert!(matches!(decided(&file(6, 7), file(5, 7), &check(Check::Content)), Make(_)));
    }

    #[test]
    fn options_leave_things_alone() {
        let base = CopyOptions::default;
        let update = CopyOptions { update: true, ..base() };
        assert_eq!(decided(&file(5, 7), file(6, 8), &update), LeftAlone);
        assert!(matches!(decided(&file(5, 9), file(6, 8), &update), Make(_)));
        let keep = CopyOptions { ignore_existing: true, ..base() };
        assert_eq!(decided(&file(5, 7), file(6, 8), &keep), LeftAlone);
        assert!(matches!(decide(&file(5, 7), None, Differences::default(), &keep), Make(_)));
        let existing = CopyOptions { existing: true, ..base() };
        assert_eq!(decide(&file(5, 7), None, Differences::default(), &existing), LeftAlone);
    }

    #[test]
    fn metadata_alone_is_touched() {
        let mut old = file(5, 7);
        old.metadata.mode = 0o600;
        let Touch(changes) = decided(&file(5, 7), old, &CopyOptions::default()) else {
            panic!("not touched")
        };
        assert_eq!(&changes.letters(b'.', &file(5, 7).kind, true), b".f...p.....");
    }

    #[test]
    fn another_kind_is_made_anew() {
        let link = Entry { kind: Kind::Symlink { target: b"t".to_vec() }, ..file(0, 7) };
        assert_eq!(decided(&link, file(5, 7), &CopyOptions::default()), Make(Changes::NEW));
        let other = Entry { kind: Kind::Symlink { target: b"u".to_vec() }, ..file(0, 7) };
        let Make(changes) = decided(&other, link, &CopyOptions::default()) else { panic!("not made") };
        assert_eq!(&changes.letters(b'c', &other.kind, true), b"cLc........");
    }
}
