//! Unsafe symbolic links: absolute ones, and those that lead out of the copied tree. As
//! rsync's `--safe-links` has it.

use crate::path::RelPath;

/// True if a link at `link_path` that points to `target` is unsafe.
///
/// The answer is by the text alone, so it must hold whatever the directories on the way become:
/// going up is allowed at the beginning of the target only, and not as its end after a slash.
pub fn is_unsafe(target: &[u8], link_path: &RelPath) -> bool {
    if target.is_empty() || target.starts_with(b"/") {
        return true;
    }
    let names: Vec<&[u8]> = target.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let ups = names.iter().take_while(|name| **name == b"..").count();
    let goes_up_later = names[ups..].contains(&&b".."[..]);
    // A target that is nothing but `..` may be so once, or with a slash behind it.
    let ends_up = target.ends_with(b"/..");
    goes_up_later || ends_up || ups > link_path.depth().saturating_sub(1)
}
