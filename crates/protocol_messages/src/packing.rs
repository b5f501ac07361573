//! Bytes packed as one zstd frame, and unpacked in bounded memory whatever a peer says.

use zstd::zstd_safe;

/// Packs, if that makes it shorter.
pub fn pack(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    zstd::bulk::compress(bytes, level).ok().filter(|packed| packed.len() < bytes.len())
}

/// Unpacks what says that it has at most `most` bytes, and takes no more memory than it says.
pub fn unpack(packed: &[u8], most: u64) -> Option<Vec<u8>> {
    let size = zstd_safe::get_frame_content_size(packed).ok().flatten().filter(|size| *size <= most)?;
    let unpacked = zstd::bulk::decompress(packed, usize::try_from(size).ok()?).ok()?;
    (unpacked.len() as u64 == size).then_some(unpacked)
}

#[cfg(test)]
mod tests {
    use towpath_content::Oid;

    use super::*;

    #[test]
    fn no_more_memory_is_taken_than_is_allowed() {
        let packed = pack(&vec![0; 1 << 20], 3).unwrap();
        assert_eq!(unpack(&packed, (1 << 20) - 1), None);
        assert_eq!(unpack(&packed, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(unpack(b"nothing packed", 1 << 20), None);
        let noise: Vec<u8> = (0..32).flat_map(|n: u32| *Oid::of(&n.to_le_bytes()).digest()).collect();
        assert_eq!(pack(&noise[..1000], 3), None);
    }
}
