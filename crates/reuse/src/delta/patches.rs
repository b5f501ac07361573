//! A file that replaces an older version which the sender has too, as corrections of that
//! ([`towpath_content::delta::patch`]), or as a zstd frame with that as its prefix, or both. Layout: `docs/formats/patch.md`.
//!
//! A large file is cut into parts ([`towpath_content::delta::exchange`]). A patch is a claim: what is made of it counts if it hashes to the file's name. Pure.

use towpath_content::delta::patch as correction;
use towpath_protocol::packing;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// Bytes of a part and its base together, at most.
const MOST_HELD: u64 = 128 << 20;

/// Form of a patch, whose number is its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    /// A frame of the target, with the base as its prefix.
    Prefixed = 0,
    /// A frame of corrections.
    Corrected = 1,
    /// The same, with the base as its prefix.
    CorrectedPrefixed = 2,
}

impl PatchForm {
    /// All that a reader takes.
    pub const ALL: [Self; 3] = [Self::Prefixed, Self::Corrected, Self::CorrectedPrefixed];
}

/// A harder level than this one packs corrections with the base as their prefix: what is new in a program looks like what was
/// there. That saves 7 % and takes as long again.
const EASY: i32 = 1;
/// Base and file of fewer bytes together are tried in the first two forms. In little text what zstd finds of the base are short
/// words, which no correction finds; with more bytes it takes several times as long and more room.
const TRIED_BOTH: usize = 512 << 10;
/// Bytes of corrections before they are packed, at most, for each byte of the file; and of their head.
const MOST_UNPACKED: u64 = 2;
const HEAD: u64 = 1 << 10;

/// Fewer bytes of corrections are packed without the base: they are not worth reading it.
const WORTH_THE_BASE: usize = 4 << 10;

/// zstd's windows: a frame refers to all of its base.
const LEAST_WINDOW: u32 = 15;
const MOST_WINDOW: u32 = 27;
/// Its table of what was seen has room for every second byte, at most these: a level's own is for plain data,
/// and forgets most of a base. It takes four times as many bytes of memory.
const MOST_TABLE: u32 = 22;

/// True if so many bytes may be a patch of one of `base_len`: both are held.
const fn may_be_whole(base_len: u64, new: u64) -> bool {
    base_len.saturating_add(new) <= MOST_HELD
}

/// A patch that makes `target` of `base`, packed with this level of zstd.
pub fn patch(base: &[u8], target: &[u8], level: i32) -> Option<Vec<u8>> {
    let corrections = correction::make(base, target)?;
    let packed = |form| pack(form, (base, target), &corrections, level);
    if base.len() + target.len() <= TRIED_BOTH {
        let forms = [PatchForm::Corrected, PatchForm::Prefixed].map(packed);
        return forms.into_iter().flatten().min_by_key(Vec::len);
    }
    let with_base = level > EASY && corrections.len() >= WORTH_THE_BASE;
    let packed_after = with_base.then(|| packed(PatchForm::CorrectedPrefixed)).flatten();
    // There may be no memory for that.
    packed_after.or_else(|| packed(PatchForm::Corrected))
}

/// The same in this form, whichever is the shortest.
pub fn patch_as(form: PatchForm, base: &[u8], target: &[u8], level: i32) -> Option<Vec<u8>> {
    pack(form, (base, target), &correction::make(base, target)?, level)
}

/// A target in this form, of which these are the corrections.
fn pack(form: PatchForm, (base, target): (&[u8], &[u8]), corrections: &[u8], level: i32) -> Option<Vec<u8>> {
    let mut frame = match form {
        PatchForm::Prefixed => pack_after(base, target, level)?,
        PatchForm::Corrected => zstd::bulk::compress(corrections, level).ok()?,
        PatchForm::CorrectedPrefixed => pack_after(base, corrections, level)?,
    };
    frame.insert(0, form as u8);
    Some(frame)
}

/// A frame of these bytes with the base as its prefix.
fn pack_after(base: &[u8], bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    let held = base.len() + bytes.len();
    let window = (usize::BITS - held.leading_zeros()).clamp(LEAST_WINDOW, MOST_WINDOW);
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    context.set_parameter(CParameter::WindowLog(window)).ok()?;
    context.set_parameter(CParameter::HashLog((window - 1).min(MOST_TABLE))).ok()?;
    context.ref_prefix(base).ok()?;
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    context.compress2(&mut packed, bytes).ok()?;
    Some(packed)
}

/// The `len` bytes that a patch makes of `base`; none if it makes others, and no more memory is taken.
pub fn apply(patch: &[u8], base: &[u8], len: u64) -> Option<Vec<u8>> {
    if !may_be_whole(base.len() as u64, len) {
        return None;
    }
    let (number, frame) = patch.split_first()?;
    let most = len.saturating_mul(MOST_UNPACKED).saturating_add(HEAD);
    let made = match PatchForm::ALL.into_iter().find(|form| *form as u8 == *number)? {
        PatchForm::Prefixed => {
            return unpack_after(base, frame, len).filter(|target| target.len() as u64 == len);
        }
        PatchForm::Corrected => packing::unpack(frame, most)?,
        PatchForm::CorrectedPrefixed => unpack_after(base, frame, most)?,
    };
    correction::apply(&made, base, usize::try_from(len).ok()?).ok()
}

/// Unpacks a frame with the base as its prefix that says that it has at most `most` bytes, and takes no more memory than it says.
fn unpack_after(base: &[u8], frame: &[u8], most: u64) -> Option<Vec<u8>> {
    let size = zstd_safe::get_frame_content_size(frame).ok().flatten().filter(|size| *size <= most)?;
    let mut context = DCtx::create();
    context.ref_prefix(base).ok()?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
    context.decompress(&mut bytes, frame).ok()?;
    (bytes.len() as u64 == size).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use towpath_content::delta::exchange::PatchParts;
    use towpath_store::doubles::noise;

    use super::*;

    #[test]
    fn a_patch_makes_its_target_of_its_base_alone() {
        let base = noise(1, 300_000);
        let target = [&base[..150_000], b"new", &base[150_100..]].concat();
        let made = patch(&base, &target, 9).unwrap();
        assert!(made.len() < 200, "{}", made.len());
        let len = target.len() as u64;
        assert_eq!(apply(&made, &base, len).unwrap(), target);
        assert_eq!(apply(&made, &base, len - 1), None);
        assert_eq!(apply(&made[..made.len() - 1], &base, len), None);
        assert_ne!(apply(&made, &noise(2, 300_000), len), Some(target.clone()), "another base");
        assert_eq!(apply(b"no patch", &base, len), None);
        assert!(may_be_whole(64 << 20, 64 << 20) && !may_be_whole(64 << 20, (64 << 20) + 1));
        assert!(!may_be_whole(u64::MAX, 1));
    }

    #[test]
    fn each_form_makes_the_target_and_tells_its_number() {
        let base = noise(1, 10_000);
        let target = [&base[..5000], b"new", &base[5010..]].concat();
        for (number, form) in (0..).zip(PatchForm::ALL) {
            let made = patch_as(form, &base, &target, 3).unwrap();
            assert_eq!((form as u8, made[0]), (number, number));
            assert_eq!(apply(&made, &base, target.len() as u64), Some(target.clone()), "{form:?}");
        }
    }

    #[test]
    fn the_shorter_form_is_taken_of_what_is_small() {
        let words: Vec<&[u8]> = vec![b"static inline ", b"int ", b"unsigned ", b"return ", b"struct page *"];
        let text =
            |seed| noise(seed, 3000).iter().flat_map(|byte| words[*byte as usize % 5].to_vec()).collect();
        let (base, target): (Vec<u8>, Vec<u8>) = (text(1), text(2));
        let linked: Vec<u8> =
            base.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at % 30 == 0)).collect();
        for (target, form) in [(&target, PatchForm::Prefixed), (&linked, PatchForm::Corrected)] {
            let made = patch(&base, target, 3).unwrap();
            assert_eq!(made[0], form as u8);
            assert_eq!(apply(&made, &base, target.len() as u64).unwrap(), **target);
        }
        assert_eq!(apply(&[3], &base, 0), None, "a form that is not known");
        assert_eq!(apply(&[], &base, 0), None);
    }

    #[test]
    fn a_hard_level_finds_in_the_base_what_is_new_in_a_program() {
        let base = noise(1, 600_000);
        // Of each hundred bytes twelve are from elsewhere in the base: too few for a match.
        let mut target = noise(2, 600_000);
        for (at, piece) in target.chunks_mut(100).enumerate() {
            piece[..12].copy_from_slice(&base[at * 77..][..12]);
        }
        let [easy, hard] = [EASY, 9].map(|level| patch(&base, &target, level).unwrap());
        let forms = [PatchForm::Corrected, PatchForm::CorrectedPrefixed];
        assert_eq!([easy[0], hard[0]], forms.map(|form| form as u8));
        assert!(hard.len() < easy.len() - 10_000, "{} {}", hard.len(), easy.len());
        for made in [&easy, &hard] {
            assert_eq!(apply(made, &base, 600_000).unwrap(), target);
            assert_eq!(apply(&made[..made.len() - 1], &base, 600_000), None);
            assert_eq!(apply(made, &base, 100_000), None, "of fewer bytes than it says");
        }
        assert_ne!(apply(&hard, &noise(3, 600_000), 600_000), Some(target), "another base");
        assert_eq!(patch(&base, &base, 9).unwrap()[0], PatchForm::Corrected as u8, "nothing is new");
    }

    #[test]
    fn what_was_inserted_is_all_that_a_large_file_takes() {
        let base = noise(1, 6 << 20);
        let target = [&base[..1000], &noise(2, 100_000), &base[1000..]].concat();
        let (base_len, new) = (base.len() as u64, target.len() as u64);
        let parts = PatchParts::new(base_len, new).unwrap();
        assert!(parts.count() > 1);
        let mut bytes = 0;
        for index in 0..parts.count() {
            let of = |range: Range<u64>| range.start as usize..range.end as usize;
            let target = &target[of(parts.target(index).unwrap())];
            let base = &base[of(parts.base(index).unwrap())];
            let made = patch(base, target, 1).unwrap();
            bytes += made.len();
            assert_eq!(apply(&made, base, target.len() as u64).unwrap(), target);
        }
        assert!(bytes < 110_000, "{bytes}");
    }
}
