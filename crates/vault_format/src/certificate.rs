//! A server's word that a version is committed: signed, each with the hash of the one before.
//!
//! A client keeps the last one. Two certificates of one number and different roots prove that the server forks.

use towpath_content::codec::{Reader, Writer};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{Canonical, hash, node, statement, version};
use crate::names::{Digest, VaultId};

/// The word of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificate {
    /// The vault.
    pub vault: VaultId,
    /// Number of the version.
    pub number: u64,
    /// Hash of its root.
    pub root: Digest,
    /// Hash of the certificate before; [`Digest::NONE`] for the first version.
    pub previous: Digest,
    /// Hash of the update that made it.
    pub update: Digest,
    /// Seconds since 1970 by the server's clock.
    pub time: u64,
    /// The server.
    pub server: NodeId,
    /// Of the server, over all above.
    pub signature: [u8; 64],
}

impl Certificate {
    /// This certificate, signed with the server's key; the signature it had does not count.
    pub fn sign(self, sign: impl FnOnce(&[u8]) -> [u8; 64]) -> Self {
        Self { signature: sign(&self.message()), ..self }
    }

    /// True if the signature is the server's.
    pub fn is_signed(&self) -> bool {
        self.server.verify(&self.message(), &self.signature)
    }

    fn message(&self) -> Vec<u8> {
        let mut body = Writer::new();
        self.write_body(&mut body);
        statement("certificate", &[&body.into_bytes()])
    }

    fn write_body(&self, out: &mut Writer) {
        out.u8(1).raw(&self.vault.0).varint(self.number);
        out.raw(&self.root.0).raw(&self.previous.0).raw(&self.update.0);
        out.varint(self.time).raw(&self.server.0);
    }
}

impl Canonical for Certificate {
    const NAME: &'static str = "certificate";
    const LIMIT: usize = 1 + 16 + 10 + 3 * 32 + 10 + 32 + 64;

    fn write(&self, out: &mut Writer) {
        self.write_body(out);
        out.raw(&self.signature);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        Ok(Self {
            vault: VaultId(reader.array("vault id")?),
            number: reader.varint("version")?,
            root: hash(reader, "root")?,
            previous: hash(reader, "previous certificate")?,
            update: hash(reader, "update")?,
            time: reader.varint("time")?,
            server: node(reader, "server")?,
            signature: reader.array("signature")?,
        })
    }
}
