//! The chunker that cut an object, and its lengths.

use std::ops::RangeInclusive;

use super::stream::ChunkStream;
use super::{Chunker, Cutter};
use crate::codec::{DecodeError, Reader, Writer, invalid};

/// The least length that parameters may set for chunks, in bytes: below it a descriptor is hardly
/// smaller than its chunk.
pub const MIN_CHUNK_LEN: u32 = 64;
/// The greatest length of a chunk, 16 MiB; a chunk is held in memory whole.
pub const MAX_CHUNK_LEN: u32 = 1 << 24;

const TAG_FIXED: u8 = 1;
const TAG_GEAR: u8 = 2;
const TAG_RABIN: u8 = 3;
const TAG_GIVEN: u8 = 4;

const LEAST: RangeInclusive<u32> = MIN_CHUNK_LEN..=1 << 20;
const AVERAGE: RangeInclusive<u32> = 256..=1 << 22;
const GREATEST: RangeInclusive<u32> = 1 << 10..=MAX_CHUNK_LEN;

/// About how many chunks an object that is cut by [`Parameters::for_size`] has at most: a recipe of some
/// 5 MB. Content that is made for it can have four times as many.
pub const MAX_CHUNKS: u64 = 1 << 17;

/// A chunker's kind and lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parameters {
    /// Every chunk but the last has one length.
    Fixed {
        /// 64 to 16 MiB.
        len: u32,
    },
    /// FastCDC (2020).
    Gear {
        /// Least length of a chunk other than the last: 64 to 1 MiB, even, below `avg`.
        min: u32,
        /// Length aimed at: 256 to 4 MiB, a power of two, below `max`.
        avg: u32,
        /// Greatest length of a chunk: 1 KiB to 16 MiB, even.
        max: u32,
    },
    /// Rabin fingerprints, as in LBFS.
    Rabin {
        /// Least length of a chunk other than the last: 64 to 1 MiB, below `avg`.
        min: u32,
        /// Length aimed at, behind the least: 256 to 4 MiB, a power of two, below `max`.
        avg: u32,
        /// Greatest length of a chunk: 1 KiB to 16 MiB.
        max: u32,
    },
    /// The application placed the boundaries, anywhere: nobody else can cut alike.
    Given,
}

impl Parameters {
    /// Content-defined chunks of about 16 KiB: their descriptors take some 0.2 % of the object, and
    /// objects cut alike everywhere find each other's chunks.
    pub const DEFAULT: Self = Self::Gear { min: 4 << 10, avg: 16 << 10, max: 64 << 10 };

    /// Bytes of the longest binary form.
    pub const MAX_ENCODED_LEN: usize = 1 + 3 + 4 + 4;

    /// Parameters for an object of `size` bytes: content-defined chunks of about 16 KiB up to 2 GiB, then in
    /// steps of two larger ones, so that there are about [`MAX_CHUNKS`] of them. `None` over 512 GiB.
    pub fn for_size(size: u64) -> Option<Self> {
        let Self::Gear { avg: least, .. } = Self::DEFAULT else {
            return None;
        };
        let avg = size.div_ceil(MAX_CHUNKS).checked_next_power_of_two()?.max(least.into());
        let avg = u32::try_from(avg).ok().filter(|avg| AVERAGE.contains(avg))?;
        Some(Self::Gear { min: avg / 4, avg, max: avg * 4 })
    }

    /// Checks that all lengths are within their limits.
    pub fn check(&self) -> Result<(), DecodeError> {
        match *self {
            Self::Fixed { len } => {
                within("chunk length", len, MIN_CHUNK_LEN..=MAX_CHUNK_LEN, "must be 64 to 16 MiB")
            }
            Self::Gear { min, avg, max } => {
                check_lengths(min, avg, max)?;
                check_shape(min.is_multiple_of(2) && max.is_multiple_of(2), "least and greatest must be even")
            }
            Self::Rabin { min, avg, max } => check_lengths(min, avg, max),
            Self::Given => Ok(()),
        }
    }

    /// A chunker with these parameters, for a stream. There is none for [`Self::Given`].
    pub fn chunker(&self) -> Result<Box<dyn Chunker>, DecodeError> {
        Ok(Box::new(ChunkStream::new(self.cutter()?)))
    }

    /// Cutter that finds the ends of chunks in bytes at hand. There is none for [`Self::Given`].
    pub fn cutter(&self) -> Result<Cutter, DecodeError> {
        Cutter::new(self)
    }

    /// Greatest length of a chunk: the memory that cutting takes.
    pub const fn max_len(&self) -> u32 {
        match *self {
            Self::Fixed { len } => len,
            Self::Gear { max, .. } | Self::Rabin { max, .. } => max,
            Self::Given => MAX_CHUNK_LEN,
        }
    }

    /// Least length of a chunk other than the object's last.
    pub const fn min_len(&self) -> u32 {
        match *self {
            Self::Fixed { len } => len,
            Self::Gear { min, .. } | Self::Rabin { min, .. } => min,
            Self::Given => 1,
        }
    }

    /// True if a chunker with these parameters can make a chunk of `len` bytes; `is_last` says
    /// that it is the object's last.
    pub const fn allows(&self, len: u32, is_last: bool) -> bool {
        let least = if is_last { 1 } else { self.min_len() };
        least <= len && len <= self.max_len()
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.encode(&mut writer);
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let parameters = Self::decode(&mut reader)?;
        reader.finish().map(|()| parameters)
    }

    /// Appends the binary form.
    pub fn encode(&self, writer: &mut Writer) {
        match *self {
            Self::Fixed { len } => writer.u8(TAG_FIXED).varint(len.into()),
            Self::Gear { min, avg, max } => {
                writer.u8(TAG_GEAR).varint(min.into()).varint(avg.into()).varint(max.into())
            }
            Self::Rabin { min, avg, max } => {
                writer.u8(TAG_RABIN).varint(min.into()).varint(avg.into()).varint(max.into())
            }
            Self::Given => writer.u8(TAG_GIVEN),
        };
    }

    /// Reads the binary form off the front of `reader`.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let parameters = match reader.u8("chunker")? {
            TAG_FIXED => Self::Fixed { len: length(reader)? },
            TAG_GEAR => Self::Gear { min: length(reader)?, avg: length(reader)?, max: length(reader)? },
            TAG_RABIN => Self::Rabin { min: length(reader)?, avg: length(reader)?, max: length(reader)? },
            TAG_GIVEN => Self::Given,
            _ => return Err(invalid("chunker", "unknown kind")),
        };
        parameters.check().map(|()| parameters)
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn length(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    reader.bounded("chunk length", MAX_CHUNK_LEN.into()).map(|len| len as u32)
}

fn check_lengths(min: u32, avg: u32, max: u32) -> Result<(), DecodeError> {
    within("least chunk length", min, LEAST, "must be 64 to 1 MiB")?;
    within("average chunk length", avg, AVERAGE, "must be 256 to 4 MiB")?;
    within("greatest chunk length", max, GREATEST, "must be 1 KiB to 16 MiB")?;
    check_shape(avg.is_power_of_two(), "the average must be a power of two")?;
    check_shape(min < avg && avg < max, "must grow from least over average to greatest")
}

const fn check_shape(is_right: bool, why: &'static str) -> Result<(), DecodeError> {
    if is_right { Ok(()) } else { Err(invalid("chunk lengths", why)) }
}

fn within(
    field: &'static str,
    len: u32,
    limits: RangeInclusive<u32>,
    why: &'static str,
) -> Result<(), DecodeError> {
    if limits.contains(&len) { Ok(()) } else { Err(invalid(field, why)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_canonical(kind in 0u8..6, mut bytes: Vec<u8>) {
            bytes.insert(0, kind);
            if let Ok(parameters) = Parameters::from_bytes(&bytes) {
                prop_assert_eq!(parameters.to_bytes(), bytes);
                prop_assert_eq!(parameters.chunker().is_ok(), parameters != Parameters::Given);
            }
        }

        #[test]
        fn lengths_within_their_limits_come_back(min in 6u32..=20, avg in 8u32..=22, max in 10u32..=24) {
            let parameters = Parameters::Gear { min: 1 << min, avg: 1 << avg, max: 1 << max };
            let read = Parameters::from_bytes(&parameters.to_bytes());
            prop_assert_eq!(read.ok(), (min < avg && avg < max).then_some(parameters));
        }
    }

    #[test]
    fn parameters_beyond_their_limits_make_no_chunker() {
        let gear = |min, avg, max| Parameters::Gear { min, avg, max };
        for bad in [
            Parameters::Fixed { len: 0 },
            Parameters::Fixed { len: MIN_CHUNK_LEN - 1 },
            Parameters::Fixed { len: u32::MAX },
            gear(0, 0, 0),
            gear(63, 256, 1024),
            gear(65, 256, 1024),
            gear(64, 300, 1024),
            gear(64, 256, 1025),
            gear(256, 256, 1024),
            gear(64, 1024, 1024),
            gear(64, 256, u32::MAX),
            Parameters::Rabin { min: 48, avg: 256, max: 1024 },
            Parameters::Rabin { min: 64, avg: 257, max: 1024 },
            Parameters::Rabin { min: 64, avg: 256, max: 256 },
        ] {
            assert!(bad.chunker().is_err(), "{bad:?}");
            assert!(Parameters::from_bytes(&bad.to_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn larger_objects_are_cut_into_larger_chunks() {
        let gear = |avg| Some(Parameters::Gear { min: avg / 4, avg, max: avg * 4 });
        for (size, expected) in [
            (0, Some(Parameters::DEFAULT)),
            (2 << 30, Some(Parameters::DEFAULT)),
            ((2 << 30) + 1, gear(32 << 10)),
            (4 << 30, gear(32 << 10)),
            ((4 << 30) + 1, gear(64 << 10)),
            (512 << 30, gear(4 << 20)),
            ((512 << 30) + 1, None),
            (u64::MAX, None),
        ] {
            assert_eq!(Parameters::for_size(size), expected, "{size}");
            assert!(expected.is_none_or(|parameters| parameters.chunker().is_ok()));
        }
    }

    #[test]
    fn the_longest_form_has_the_stated_length() {
        let longest = Parameters::Gear { min: 1 << 20, avg: 1 << 22, max: MAX_CHUNK_LEN };
        assert_eq!(longest.to_bytes().len(), Parameters::MAX_ENCODED_LEN);
    }
}
