//! The word by which versions are dropped. Nothing else lets a server collect garbage.

use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{Canonical, list, node, statement, version, write_list};
use crate::members::Members;
use crate::names::VaultId;

/// The most runs of versions in one statement.
pub const MAX_RANGES: usize = 4096;

/// A run of versions that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedRange {
    /// The first.
    pub first: u64,
    /// The last; not before the first.
    pub last: u64,
}

impl DroppedRange {
    /// True if version `number` is in it.
    pub const fn covers(&self, number: u64) -> bool {
        self.first <= number && number <= self.last
    }
}

/// Versions that may go, said by who may say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropStatement {
    /// The vault.
    pub vault: VaultId,
    /// 0 for the first statement; each has the next number, so none counts twice.
    pub number: u64,
    /// Versions that may go: in order, apart from each other. The newest version stays, whatever they say.
    pub dropped: Vec<DroppedRange>,
    /// Who says it.
    pub deleter: NodeId,
    /// Of the deleter, over all above.
    pub signature: [u8; 64],
}

impl DropStatement {
    /// This statement, signed with the deleter's key; the signature it had does not count.
    pub fn sign(self, sign: impl FnOnce(&[u8]) -> [u8; 64]) -> Self {
        let signature = sign(&self.message());
        Self { signature, ..self }
    }

    /// True if one who may drop versions of this vault signed it.
    pub fn is_valid(&self, members: &Members) -> bool {
        self.vault == members.vault && members.may_drop(&self.deleter) && self.is_signed()
    }

    /// True if the signature is its deleter's, whoever that is.
    pub fn is_signed(&self) -> bool {
        self.deleter.verify(&self.message(), &self.signature)
    }

    /// True if version `number` may go.
    pub fn covers(&self, number: u64) -> bool {
        self.dropped.iter().any(|range| range.covers(number))
    }

    fn message(&self) -> Vec<u8> {
        let mut body = Writer::new();
        self.write_body(&mut body);
        statement("drop", &[&body.into_bytes()])
    }

    fn write_body(&self, out: &mut Writer) {
        out.u8(1).raw(&self.vault.0).varint(self.number);
        write_list(out, &self.dropped, DroppedRange::write);
        out.raw(&self.deleter.0);
    }
}

impl Canonical for DroppedRange {
    const NAME: &'static str = "run of versions";
    const LIMIT: usize = 20;

    fn write(&self, out: &mut Writer) {
        out.varint(self.first).varint(self.last);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { first: reader.varint("version")?, last: reader.varint("version")? })
    }
}

impl Canonical for DropStatement {
    const NAME: &'static str = "drop statement";
    const LIMIT: usize = 1 + 16 + 10 + 2 + 20 * MAX_RANGES + 32 + 64;

    fn write(&self, out: &mut Writer) {
        self.write_body(out);
        out.raw(&self.signature);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        let vault = VaultId(reader.array("vault id")?);
        let number = reader.varint("number of a statement")?;
        let dropped = list(reader, "dropped versions", MAX_RANGES, DroppedRange::read)?;
        let (deleter, signature) = (node(reader, "deleter")?, reader.array("signature")?);
        match are_in_order(&dropped) {
            true => Ok(Self { vault, number, dropped, deleter, signature }),
            false => Err(invalid("dropped versions", "are not in order")),
        }
    }
}

fn are_in_order(ranges: &[DroppedRange]) -> bool {
    let are_ranges = ranges.iter().all(|range| range.first <= range.last);
    are_ranges && ranges.is_sorted_by(|one, next| one.last < next.first)
}
