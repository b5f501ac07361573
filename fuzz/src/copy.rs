//! Copies over ssh, whose other side may lie: its messages, the options of a copy, and the deltas and patches that make files of their older
//! versions.

use towpath_content::delta::exchange::PatchParts;
use towpath_service::fuzzing;

use crate::input::{Source, noise};
use crate::seeds;

/// Bytes of a message at most.
const LONGEST: usize = 256 << 10;

/// A message of the other side.
pub fn copy_message(data: &[u8]) {
    let Some(message) = fuzzing::read_message(data) else { return };
    // Numbers in a list may have been told one by one, which takes a byte each at most.
    assert!(message.len() <= 2 * data.len().max(LONGEST));
    assert_eq!(fuzzing::read_message(&message).as_ref(), Some(&message));
}

/// Error by which the other side gave up.
pub fn copy_error(data: &[u8]) {
    let Some((shown, said)) = fuzzing::read_error(data) else { return };
    // Two paths of 8 KiB, a byte of which takes ten when it is shown, and texts of 4 KiB.
    assert!(shown.len() < 256 << 10);
    assert_eq!(fuzzing::read_error(&said), Some((shown, said.clone())));
}

/// The options that a copy begins with, and the texts in them.
pub fn copy_options(data: &[u8]) {
    let Some(options) = fuzzing::read_options(data) else { return };
    let written = fuzzing::write_options(&options);
    assert_eq!(fuzzing::read_options(&written), Some(options.clone()));
    options.chmod.iter().for_each(|text| crate::files::chmod(text.as_bytes()));
    crate::files::filter_rules(&options.filters.join(&b'\n'));
}

/// The older version that patches are applied to, which is said to have `old` bytes.
pub fn patch_base(old: u64) -> Vec<u8> {
    [&seeds::content::base(), noise(old.min(1 << 16) as usize)].concat()
}

/// A patch, and the lengths of what it is of and of what it makes.
pub fn copy_patch(data: &[u8]) {
    let mut source = Source::new(data);
    let (old, new, patch) = (source.number(), source.number(), source.rest());
    if let Some(parts) = PatchParts::new(old, new) {
        for index in [0, parts.count() / 2, parts.count() - 1] {
            let base = parts.base(index).expect("one of the parts");
            assert!(base.start <= base.end && base.end <= old);
        }
    }
    let base = patch_base(old);
    for len in [new, new.saturating_sub(1), u64::MAX] {
        if let Some(made) = fuzzing::apply_patch(patch, &base, len) {
            assert_eq!(made.len() as u64, len);
        }
    }
}
