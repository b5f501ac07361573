//! Differences between two things' metadata, as far as a policy would change them.
//!
//! Metadata that cannot be applied here (another user's ownership without being root, attributes of other
//! namespaces) is no difference: a second run of a copy finds none.

use rustix::fs::FileType;
use towpath_content::tree::{Kind, Metadata, Xattr};

use super::attributes::{ACCESS, DEFAULT, is_carried};
use super::{Policy, SETGID, SETUID, is_root, owners, wanted_owner};

/// Differences found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differences {
    /// Permission bits.
    pub mode: bool,
    /// Time of last modification.
    pub time: bool,
    /// The owning user.
    pub user: bool,
    /// The owning group.
    pub group: bool,
    /// ACLs.
    pub acls: bool,
    /// Other extended attributes.
    pub xattrs: bool,
}

impl Differences {
    /// True if anything does.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Changes that applying `wanted` by `policy` to a thing of this `kind` would make to what is `here`.
/// Attributes are compared only if the looks at both sides read them.
pub fn differences(kind: &Kind, wanted: &Metadata, here: &Metadata, policy: &Policy) -> Differences {
    let (user, group) = wanted_owner(wanted, policy);
    let of = file_type(kind);
    let is_link = of == FileType::Symlink;
    let differ = |takes: &dyn Fn(&[u8]) -> bool| select(wanted, takes).ne(select(here, takes));
    Differences {
        mode: policy.modes && !is_link && mode_here(wanted, here, policy) != here.mode,
        time: policy.takes_times(of) && wanted.modified != here.modified,
        user: user.is_some_and(|id| id != here.user.id),
        group: group.is_some_and(|id| id != here.group.id),
        acls: policy.takes_acls() && differ(&|name| is_acl_of(of, name)),
        xattrs: policy.xattrs && differ(&|name| is_carried(name, policy.privileged_xattrs)),
    }
}

/// The mode that would come of it.
fn mode_here(wanted: &Metadata, here: &Metadata, policy: &Policy) -> u32 {
    if !policy.special_bits {
        return wanted.mode & !(SETUID | SETGID);
    }
    let root = is_root();
    let user = owners::local_user(&wanted.user, policy.numeric_ids);
    let foreign_user = policy.owner && !root && user != here.user.id;
    let group = owners::local_group(&wanted.group, policy.numeric_ids);
    let foreign_group = policy.group && !root && group != here.group.id && !super::is_member(group);
    let dropped = if foreign_user { SETUID } else { 0 } | if foreign_group { SETGID } else { 0 };
    wanted.mode & !dropped
}

const fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink { .. } => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

fn is_acl_of(of: FileType, name: &[u8]) -> bool {
    let default = of == FileType::Directory && name == DEFAULT.to_bytes();
    of != FileType::Symlink && (name == ACCESS.to_bytes() || default)
}

fn select<'m>(metadata: &'m Metadata, takes: &'m dyn Fn(&[u8]) -> bool) -> impl Iterator<Item = &'m Xattr> {
    metadata.xattrs.iter().filter(|xattr| takes(&xattr.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::tree::Time;

    fn metadata(mode: u32, seconds: i64, xattrs: &[&str]) -> Metadata {
        let xattr = |name: &&str| Xattr { name: name.as_bytes().to_vec(), value: Vec::new() };
        let modified = Time { seconds, nanos: 0 };
        Metadata { mode, modified, xattrs: xattrs.iter().map(xattr).collect(), ..Metadata::default() }
    }

    const FILE: Kind = Kind::File { size: 0, oid: None, extents: None };

    #[test]
    fn only_what_the_policy_takes_differs() {
        let wanted = metadata(0o4755, 1, &["system.posix_acl_access", "user.a"]);
        let here = metadata(0o644, 2, &[]);
        let all = Differences { mode: true, time: true, acls: true, xattrs: true, ..Default::default() };
        let found = |policy: Policy| differences(&FILE, &wanted, &here, &policy);
        assert_eq!(found(Policy::archive()), all);
        assert_eq!(found(Policy::default()), Differences { acls: false, xattrs: false, ..all });
        let none = Policy { modes: false, times: false, acls: true, ..Policy::default() };
        assert!(!found(none).any(), "ACLs go with modes");
    }

    #[test]
    fn what_cannot_be_applied_is_no_difference() {
        let (wanted, here) = (metadata(0o4755, 1, &["system.other"]), metadata(0o755, 1, &[]));
        assert!(!differences(&FILE, &wanted, &here, &Policy::default()).mode, "no special bits");
        assert!(!differences(&FILE, &wanted, &here, &Policy::archive()).xattrs);
        let link = Kind::Symlink { target: b"t".to_vec() };
        assert!(!differences(&link, &wanted, &here, &Policy::archive()).any());
        let acl = metadata(0o755, 1, &["system.posix_acl_default"]);
        assert!(!differences(&FILE, &acl, &here, &Policy::archive()).acls);
        assert!(differences(&Kind::Directory, &acl, &here, &Policy::archive()).acls);
    }
}
