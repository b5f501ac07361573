//! Doors for the fuzz targets in `fuzz/`: messages of the other side of a copy, and what is made of them. Nothing else
//! asks for the feature `fuzzing`.

mod conversation;

use bytes::Bytes;

use super::message::{EndReport, Fatal, Message, options};
pub use conversation::{FuzzedReceiver, FuzzedSender, merge};
use towpath_api::copy::{CopyEvent, CopyOptions};
use towpath_reuse::delta::patches::{self, PatchForm};

/// A message as this program would send it.
pub fn read_message(bytes: &[u8]) -> Option<Vec<u8>> {
    let message = match Message::from_bytes(Bytes::copy_from_slice(bytes)).ok()? {
        Message::Event(report) => Message::Event(CopyEvent::try_from(report).ok()?.into()),
        Message::Finished(finished) => Message::Finished(EndReport::with(finished.into_summary())),
        message => message,
    };
    Some(message.into_bytes().into())
}

/// Error in a message that ends a copy, as this program would show it and send it.
pub fn read_error(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let Ok(Message::Fatal(fatal)) = Message::from_bytes(Bytes::copy_from_slice(bytes)) else { return None };
    let error = fatal.error()?;
    Some((error.to_string(), Message::Fatal(Fatal::of(&error)).into_bytes().into()))
}

/// The options of a copy, as a client sends them.
pub fn read_options(bytes: &[u8]) -> Option<CopyOptions> {
    options::decode(Bytes::copy_from_slice(bytes)).ok()
}

/// The same as this program sends them.
pub fn write_options(options: &CopyOptions) -> Vec<u8> {
    options::encode(options).into()
}

/// Patches that make `target` of `base`: one of each form.
pub fn make_patches(base: &[u8], target: &[u8]) -> Vec<Vec<u8>> {
    let patch = |form| patches::patch_as(form, base, target, 3);
    PatchForm::ALL.into_iter().filter_map(patch).collect()
}

/// Bytes that a patch makes of `base`.
pub fn apply_patch(patch: &[u8], base: &[u8], len: u64) -> Option<Vec<u8>> {
    patches::apply(patch, base, len)
}
