//! Data payloads as zstd frames, where both ends understand them and one of them asked: the first
//! encoding.

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use crate::processor::{Decode, Encode, Encoding, Processor};

/// The capability of a side that understands compressed payloads.
pub const CAPABILITY: &str = "zstd";
/// The capability by which a side asks for them.
pub const WISH: &str = "compress";
/// Quick: it must not be slower than the network.
const LEVEL: i32 = 1;

/// The processor.
pub struct Zstd;

impl Processor for Zstd {
    fn name(&self) -> &str {
        CAPABILITY
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Zstd {
    fn capability(&self) -> &str {
        CAPABILITY
    }

    fn wish(&self) -> &str {
        WISH
    }

    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(Packer::default())
    }

    fn decoder(&self) -> Box<dyn Decode> {
        Box::new(Unpacker::default())
    }
}

/// Compresses payloads; keeps its tables from one to the next.
#[derive(Default)]
struct Packer(Option<Compressor<'static>>);

impl Encode for Packer {
    /// `payload` as one zstd frame, if that is shorter.
    fn encode(&mut self, payload: &[u8]) -> Option<Bytes> {
        if self.0.is_none() {
            self.0 = Compressor::new(LEVEL).ok();
        }
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(payload.len()));
        self.0.as_mut()?.compress_to_buffer(payload, &mut packed).ok()?;
        (packed.len() < payload.len()).then(|| packed.into())
    }
}

/// Takes compressed payloads apart.
#[derive(Default)]
struct Unpacker(Option<Decompressor<'static>>);

impl Decode for Unpacker {
    /// The bytes of a payload that must be one frame of exactly `expected` bytes. No more memory
    /// than that is taken, whatever the payload says.
    fn decode(&mut self, payload: &[u8], expected: usize) -> Result<Bytes, String> {
        let size = zstd_safe::get_frame_content_size(payload).ok().flatten();
        let is_one_frame = zstd_safe::find_frame_compressed_size(payload) == Ok(payload.len());
        if size != Some(expected as u64) || !is_one_frame {
            return Err(format!("sent compressed data that are not {expected} bytes"));
        }
        if self.0.is_none() {
            self.0 = Decompressor::new().ok();
        }
        let unpacker = self.0.as_mut().ok_or("there is no memory to decompress data")?;
        let mut bytes = Vec::with_capacity(expected);
        match unpacker.decompress_to_buffer(payload, &mut bytes) {
            Ok(len) if len == expected => Ok(bytes.into()),
            _ => Err("sent damaged compressed data".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(bytes, LEVEL).unwrap()
    }

    #[test]
    fn what_shrinks_comes_back_and_what_does_not_is_left_alone() {
        let text = b"all work and no play ".repeat(1000);
        let packed = Packer::default().encode(&text).unwrap();
        assert!(packed.len() < text.len() / 10);
        assert_eq!(Unpacker::default().decode(&packed, text.len()).unwrap(), text);
        let hash = towpath_content::Oid::of(b"noise");
        assert_eq!(Packer::default().encode(hash.digest()), None);
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        let mut unpacker = Unpacker::default();
        let good = packed(&[7; 1000]);
        for expected in [0, 1, 999, 1001, 1 << 18] {
            assert!(unpacker.decode(&good, expected).is_err(), "{expected}");
        }
        let mut lying = packed(&[7; 1000]);
        // A frame of a single segment tells its size in the bytes after magic and descriptor.
        assert_eq!(lying[5..7], (1000u16 - 256).to_le_bytes());
        lying[5..7].copy_from_slice(&(999u16 - 256).to_le_bytes());
        assert!(unpacker.decode(&lying, 999).is_err());
        let twice = [packed(&[7; 500]), packed(&[7; 500])].concat();
        assert!(unpacker.decode(&twice, 500).is_err());
        assert!(unpacker.decode(&twice, 1000).is_err());
        assert_eq!(unpacker.decode(&good, 1000).unwrap(), vec![7; 1000], "still works");
    }

    #[test]
    fn a_bomb_is_refused_before_memory_is_taken() {
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 256 << 10);
        assert!(Unpacker::default().decode(&bomb, 1 << 18).is_err());
    }

    #[test]
    fn garbage_is_refused() {
        let good = packed(&b"some words and some more ".repeat(20));
        for cut in 0..good.len() {
            assert!(Unpacker::default().decode(&good[..cut], 500).is_err());
        }
        assert!(Unpacker::default().decode(b"garbage", 7).is_err());
    }
}
