//! Rights (setuid, setgid, file capabilities, `trusted.`): taken off what a sender sends, unless the person
//! asked for it, and counted, so that whoever makes a backup notices.

use towpath_api::copy::{Dropped, Preserve};
use towpath_content::tree::{Kind, Metadata};
use towpath_files::metadata::is_privileged;

const SETUID_SETGID: u32 = 0o6000;

/// Takes off what was not asked for; what that was.
pub fn drop_unasked(metadata: &mut Metadata, kind: &Kind, preserve: &Preserve) -> Dropped {
    let mut dropped = Dropped::default();
    let has_bits = !matches!(kind, Kind::Symlink { .. }) && metadata.mode & SETUID_SETGID != 0;
    if has_bits && !preserve.special_bits {
        metadata.mode &= !SETUID_SETGID;
        // Without modes nobody expects them.
        dropped.special_bits = u64::from(preserve.perms);
    }
    if !preserve.privileged_xattrs {
        let before = metadata.xattrs.len();
        metadata.xattrs.retain(|xattr| !is_privileged(&xattr.name));
        dropped.privileged_xattrs = u64::from(preserve.xattrs && metadata.xattrs.len() < before);
    }
    dropped
}

#[cfg(test)]
mod tests {
    use towpath_content::tree::Xattr;

    use super::*;

    const FILE: Kind = Kind::File { size: 0, oid: None, extents: None };

    fn metadata() -> Metadata {
        let names = ["security.capability", "system.posix_acl_access", "trusted.x", "user.x"];
        let xattr = |name: &str| Xattr { name: name.as_bytes().to_vec(), value: Vec::new() };
        Metadata { mode: 0o6755, xattrs: names.map(xattr).to_vec(), ..Metadata::default() }
    }

    #[test]
    fn what_gives_rights_comes_only_where_it_was_asked_for() {
        let plain = Preserve::default();
        for (preserve, mode, names, dropped) in [
            (plain, 0o755, 2, [1, 1]),
            (Preserve { special_bits: true, ..plain }, 0o6755, 2, [0, 1]),
            (Preserve { privileged_xattrs: true, ..plain }, 0o755, 4, [1, 0]),
            (Preserve { perms: false, xattrs: false, ..plain }, 0o755, 2, [0, 0]),
        ] {
            let mut metadata = metadata();
            let Dropped { special_bits, privileged_xattrs } = drop_unasked(&mut metadata, &FILE, &preserve);
            assert_eq!((metadata.mode, metadata.xattrs.len()), (mode, names), "{preserve:?}");
            assert_eq!([special_bits, privileged_xattrs], dropped, "{preserve:?}");
        }
    }
}
