//! A tree's descriptor, decoded while it comes.

use std::io::{self, Read};

use towpath_content::DecodeError;
use towpath_content::tree::{Decoder, Located};

use crate::spool::SpoolReader;

/// Bytes read at once.
const PART: usize = 64 << 10;

/// Reason why a descriptor was not followed to its end.
#[derive(Debug)]
pub enum DescriptorEnd<E> {
    /// It did not come whole.
    CutOff(io::Error),
    /// It is not valid.
    Invalid(DecodeError),
    /// The visitor returned this.
    Stopped(E),
}

/// Decodes a descriptor to its end. `visit` gets its events, and `None` when the next one may take a
/// while.
pub fn follow<E>(
    mut reader: SpoolReader,
    mut visit: impl FnMut(Option<Located>) -> Result<(), E>,
) -> Result<(), DescriptorEnd<E>> {
    let (mut decoder, mut part) = (Decoder::new(), vec![0; PART]);
    loop {
        let read = reader.read(&mut part).map_err(DescriptorEnd::CutOff)?;
        let mut rest = &part[..read];
        loop {
            let taken = decoder.feed(rest);
            rest = &rest[taken..];
            while let Some(located) = decoder.next_event().map_err(DescriptorEnd::Invalid)? {
                visit(Some(located)).map_err(DescriptorEnd::Stopped)?;
            }
            visit(None).map_err(DescriptorEnd::Stopped)?;
            if rest.is_empty() {
                break;
            }
        }
        if read == 0 {
            return decoder.finish().map_err(DescriptorEnd::Invalid);
        }
    }
}
