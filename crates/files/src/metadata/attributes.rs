//! Extended attributes and POSIX ACLs (which the system shows as attributes) of a held inode.
//!
//! Attributes are carried by rsync's rule: root carries every namespace but `system.`,
//! everyone else `user.`; the two ACLs are carried apart, when asked for. What gives rights (file capabilities, labels,
//! `trusted.`) is read and told by root, and applied where a person asked for it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::io::Errno;
use towpath_content::tree::{MAX_NAME, MAX_XATTR_VALUE, MAX_XATTRS, Xattr};

use super::held::{HeldMetadata, file_type};
use super::{is_root, kernel};

/// The ACL that decides who may use a file.
pub(super) const ACCESS: &CStr = c"system.posix_acl_access";
/// The ACL that new things in a directory begin with.
pub(super) const DEFAULT: &CStr = c"system.posix_acl_default";
/// Labels that the system itself puts on files: one that a source lacks is not taken away.
const LABELS: [&[u8]; 4] = [b"security.selinux", b"security.SMACK64", b"security.ima", b"security.evm"];
/// Prefixes of attributes in which browsers and downloaders note, unasked, where a file came from.
const ORIGINS: [&[u8]; 2] = [b"user.xdg.origin.", b"user.xdg.referrer."];
/// Prefix under which rsync keeps what it could not apply.
const RSYNC: &[u8] = b"user.rsync.%";

/// Room for the names that most files have, if they have any.
const FEW: usize = 256;

/// Attributes that are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) xattrs: bool,
    pub(crate) acls: bool,
}

impl Which {
    /// True if there is anything to do.
    pub(crate) const fn any(self) -> bool {
        self.xattrs || self.acls
    }

    fn takes(self, name: &[u8]) -> bool {
        if is_acl(name) { self.acls } else { self.xattrs && is_carried(name, true) }
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS.to_bytes() || name == DEFAULT.to_bytes()
}

/// True for an attribute that this process carries besides ACLs; with `privileged`, those that only root may give.
pub(super) fn is_carried(name: &[u8], privileged: bool) -> bool {
    let is_users = name.starts_with(b"user.");
    let theirs = is_users || privileged && is_root() && !name.starts_with(b"system.");
    theirs && !name.starts_with(RSYNC)
}

/// Takes the permissions of a umask off an ACL as the system has it; false if it is none. What it says of users and
/// groups by name is limited by its mask, or by the group's entry.
pub(super) fn mask_acl(acl: &mut [u8], umask: u32) -> bool {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const OWNER: u16 = 1;
    const GROUP: u16 = 4;
    const MASK: u16 = 16;
    const OTHERS: u16 = 32;
    let Some((version, entries)) = acl.split_first_chunk_mut::<4>() else { return false };
    let (entries, []) = entries.as_chunks_mut::<8>() else { return false };
    for [tag_low, tag_high, low, high, ..] in entries {
        let held_back = match u16::from_le_bytes([*tag_low, *tag_high]) {
            OWNER => umask >> 6,
            GROUP | MASK => umask >> 3,
            OTHERS => umask,
            _ => 0,
        };
        let permissions = u16::from_le_bytes([*low, *high]) & !(held_back as u16 & 7);
        [*low, *high] = permissions.to_le_bytes();
    }
    *version == VERSION
}

/// True for an attribute that only root may give: not `user.`, and no ACL.
pub fn is_privileged(name: &[u8]) -> bool {
    !name.starts_with(b"user.") && !is_acl(name)
}

/// True for an attribute that tells where its owner had the file from.
pub fn tells_origin(name: &[u8]) -> bool {
    ORIGINS.iter().any(|prefix| name.starts_with(prefix))
}

/// True if `name` in `dir`, if a link then the link itself, has none of these attributes. False if in doubt. Of the
/// inode that has the name at this moment: nothing says that it is the one of a look before or after.
pub(crate) fn has_none(dir: BorrowedFd<'_>, name: &[u8], which: Which) -> bool {
    let mut list = [0; FEW];
    let Ok(names) = kernel::attribute_names(dir, name, &mut list) else { return false };
    names.split(|&b| b == 0).all(|name| name.is_empty() || !which.takes(name))
}

/// Reads the attributes, sorted by name, and tells why the others are missing. Those that a tree
/// descriptor cannot hold are left out.
pub(crate) fn read(held: HeldMetadata<'_>, which: Which) -> (Vec<Xattr>, Option<io::Error>) {
    let mut found = CollectedAttributes::default();
    match names(held) {
        Ok(names) => {
            names.iter().filter(|name| which.takes(name.to_bytes())).for_each(|name| found.add(held, name))
        }
        Err(error) => found.failed = Some(error.into()),
    }
    (found.xattrs, found.failed)
}

/// All names in ascending order. A file system without attributes has none.
fn names(held: HeldMetadata<'_>) -> Result<Vec<CString>, Errno> {
    let list = match held.attribute_names() {
        Err(Errno::OPNOTSUPP) => Vec::new(),
        list => list?,
    };
    let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
    let mut names: Vec<CString> = names.filter_map(|name| CString::new(name).ok()).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[derive(Default)]
struct CollectedAttributes {
    xattrs: Vec<Xattr>,
    bytes: usize,
    failed: Option<io::Error>,
}

impl CollectedAttributes {
    fn add(&mut self, held: HeldMetadata<'_>, name: &CStr) {
        match held.attribute(name) {
            Ok(None) => {}
            Ok(Some(value)) => self.keep(name.to_bytes(), value),
            Err(error) => self.fail(error.into()),
        }
    }

    fn keep(&mut self, name: &[u8], value: Vec<u8>) {
        let bytes = self.bytes + name.len() + value.len();
        if name.len() > MAX_NAME || value.len() > MAX_XATTR_VALUE || bytes > MAX_XATTRS {
            return self.fail(io::Error::other("more attributes than a tree descriptor holds"));
        }
        self.bytes = bytes;
        self.xattrs.push(Xattr { name: name.to_vec(), value });
    }

    fn fail(&mut self, error: io::Error) {
        self.failed.get_or_insert(error);
    }
}

/// Makes the carried attributes those of `wanted`: sets what differs, removes what is not there.
pub(super) fn write_xattrs(held: HeldMetadata<'_>, wanted: &[Xattr], privileged: bool) -> Result<(), Errno> {
    let mut outcome = Ok(());
    for Xattr { name, value } in wanted.iter().filter(|xattr| is_carried(&xattr.name, privileged)) {
        let done = CString::new(name.as_slice()).map_err(|_| Errno::INVAL);
        outcome = outcome.and(done.and_then(|name| set_if_other(held, &name, value)));
    }
    for name in names(held)? {
        let name = name.as_c_str();
        let stays = wanted.iter().any(|xattr| xattr.name == name.to_bytes());
        if !stays && is_carried(name.to_bytes(), privileged) && !LABELS.contains(&name.to_bytes()) {
            outcome = outcome.and(remove(held, name));
        }
    }
    outcome
}

/// Makes the ACLs those of `wanted`; what has none there has none afterwards.
pub(super) fn write_acls(held: HeldMetadata<'_>, wanted: &[Xattr]) -> Result<(), Errno> {
    let acls: &[&CStr] = match file_type(&held.stat()?) {
        FileType::Symlink => &[],
        FileType::Directory => &[ACCESS, DEFAULT],
        _ => &[ACCESS],
    };
    let mut outcome = Ok(());
    for &name in acls {
        outcome = outcome.and(match wanted.iter().find(|xattr| xattr.name == name.to_bytes()) {
            Some(acl) => set_if_other(held, name, &acl.value),
            None => remove(held, name),
        });
    }
    outcome
}

fn set_if_other(held: HeldMetadata<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    match held.attribute(name) {
        Ok(Some(there)) if there == value => Ok(()),
        _ => held.set_attribute(name, value),
    }
}

/// Without the attribute, or without attributes at all, there is nothing to remove.
fn remove(held: HeldMetadata<'_>, name: &CStr) -> Result<(), Errno> {
    match held.remove_attribute(name) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |&(tag, permissions): &(u16, u16)| {
            let id = u32::MAX.to_le_bytes();
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id].concat()
        };
        [2_u32.to_le_bytes().to_vec()]
            .into_iter()
            .chain(entries.iter().map(entry))
            .collect::<Vec<_>>()
            .concat()
    }

    #[test]
    fn a_umask_holds_for_an_acl_as_for_a_mode() {
        let mut all = acl(&[(1, 7), (2, 7), (4, 7), (16, 7), (32, 7)]);
        assert!(mask_acl(&mut all, 0o027));
        assert_eq!(all, acl(&[(1, 7), (2, 7), (4, 5), (16, 5), (32, 0)]));
        for broken in [&[][..], &[2, 0], &[3, 0, 0, 0], &[2, 0, 0, 0, 1]] {
            assert!(!mask_acl(&mut broken.to_vec(), 0), "{broken:?}");
        }
    }

    #[test]
    fn where_a_file_came_from_is_known_by_the_name() {
        assert!(tells_origin(b"user.xdg.origin.url") && tells_origin(b"user.xdg.referrer.url"));
        assert!(!tells_origin(b"user.xdg.tags") && !tells_origin(b"user.origin"));
    }
}
