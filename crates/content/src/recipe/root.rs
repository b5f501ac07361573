//! The root of a recipe: which object, cut how, and where its tree begins.

use super::{MAX_SIZE, NodeHash, VERSION};
use crate::chunking::Parameters;
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::oid::Oid;

/// Bytes of the longest encoding of a root.
pub const MAX_ROOT_LEN: usize = 1 + Parameters::MAX_ENCODED_LEN + 7 + Oid::ENCODED_LEN + 32;

/// A recipe, as claimed by its maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecipeRoot {
    /// Parameters by which the object was cut.
    pub parameters: Parameters,
    /// Bytes of the object.
    pub size: u64,
    /// The object that the chunks are claimed to build; never a live one.
    pub object: Oid,
    /// The node at the top of the tree.
    pub top: NodeHash,
}

impl RecipeRoot {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION);
        self.parameters.encode(&mut writer);
        writer.varint(self.size);
        self.object.encode(&mut writer);
        writer.raw(&self.top.0);
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        read_version("recipe", &mut reader)?;
        let parameters = Parameters::decode(&mut reader)?;
        let size = reader.bounded("object size", MAX_SIZE)?;
        let object = Oid::decode(&mut reader)?;
        let top = NodeHash(reader.array("top node")?);
        reader.finish()?;
        check_object(&object)?;
        Ok(Self { parameters, size, object, top })
    }
}

/// A recipe is made of a complete object.
pub(super) const fn check_object(object: &Oid) -> Result<(), DecodeError> {
    if object.is_live() {
        return Err(invalid("recipe", "is of an object that is still being produced"));
    }
    Ok(())
}

/// Reads the version byte that begins a root and a node.
pub(super) fn read_version(field: &'static str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let found = reader.u8(field)?;
    if found != VERSION {
        return Err(DecodeError::Version { field, found: found.into(), known: VERSION.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn root(size: u64) -> RecipeRoot {
        RecipeRoot { parameters: Parameters::DEFAULT, size, object: Oid::of(b"x"), top: NodeHash([7; 32]) }
    }

    proptest! {
        #[test]
        fn changed_roots_are_refused_or_canonical(size in 0..=MAX_SIZE, at: usize, to: u8, cut: usize) {
            let mut bytes = root(size).to_bytes();
            prop_assert_eq!(RecipeRoot::from_bytes(&bytes), Ok(root(size)));
            prop_assert!(bytes.len() <= MAX_ROOT_LEN);
            prop_assert!(RecipeRoot::from_bytes(&bytes[..cut % bytes.len()]).is_err());
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(root) = RecipeRoot::from_bytes(&bytes) {
                prop_assert_eq!(root.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_canonical(mut bytes: Vec<u8>) {
            bytes.insert(0, VERSION);
            if let Ok(root) = RecipeRoot::from_bytes(&bytes) {
                prop_assert_eq!(root.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_size_over_the_limit_a_live_object_and_another_version_are_refused() {
        let large = root(MAX_SIZE + 1);
        assert!(matches!(RecipeRoot::from_bytes(&large.to_bytes()), Err(DecodeError::TooLarge { .. })));
        let live = RecipeRoot { object: Oid::Live([1; 32]), ..root(1) };
        assert!(matches!(RecipeRoot::from_bytes(&live.to_bytes()), Err(DecodeError::Invalid { .. })));
        let mut newer = root(1).to_bytes();
        newer[0] = VERSION + 1;
        assert!(matches!(RecipeRoot::from_bytes(&newer), Err(DecodeError::Version { .. })));
    }
}
