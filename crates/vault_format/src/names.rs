//! Names of vaults, files and blocks, and the hashes that name what has one content for ever.

use std::fmt;

use towpath_content::node_id::hex;

/// A vault: 16 random bytes of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VaultId(pub [u8; 16]);

/// A file of a vault: 16 random bytes. What a person calls it stands in the catalogue, which is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// The file that lists all others by name.
    pub const CATALOGUE: Self = Self([0; 16]);
}

/// A block: 16 bytes that the client draws at random. They are part of what its key and nonce are derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub [u8; 16]);

/// BLAKE3 of a block's ciphertext, or of a record's encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// That of nothing: there is none.
    pub const NONE: Self = Self([0; 32]);

    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// True for [`Self::NONE`].
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The first eight digits, for messages to people.
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

impl fmt::Display for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}
