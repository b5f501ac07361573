//! The newest version, for who has seen an older one: what it differs in. Most of a head is as it was, or follows from it, and a put or a
//! get on a slow line is some hundred bytes in all.
//!
//! Nothing here is believed: the result is a version as any other, with its signatures.

use bytes::Bytes;
use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::delta::patch;
use towpath_vault_format::{Canonical, Certificate, Digest, SignedRoot};

use crate::message::CommittedVersion;

/// What a signed root is a patch on: the older one, and its hash, which the next one names.
fn base_of(seen: &CommittedVersion) -> Vec<u8> {
    let signed = seen.signed.to_bytes();
    [&signed[..], &seen.signed.root.digest().0].concat()
}

/// The certificate before one that follows on `seen`.
fn previous(seen: &CommittedVersion, number: u64) -> Option<Digest> {
    (seen.signed.root.number.checked_add(1) == Some(number)).then(|| seen.certificate.digest())
}

/// What `newest` differs in from `seen`. `None`: too much.
pub fn difference(seen: &CommittedVersion, newest: &CommittedVersion) -> Option<Bytes> {
    let Certificate { number, previous: before, time, signature, .. } = newest.certificate;
    let signed = newest.signed.to_bytes();
    let patch = patch::make(&base_of(seen), &signed)?;
    let mut out = Writer::new();
    match previous(seen, number) == Some(before) {
        true => out.u8(0),
        false => out.u8(1).raw(&before.0),
    };
    out.varint(time).raw(&signature).varint(signed.len() as u64).raw(&patch);
    let difference = out.into_bytes();
    // A certificate may be another server's, of which this says nothing.
    let is_it = made(seen, &difference).is_ok_and(|made| made == *newest);
    is_it.then(|| difference.into())
}

/// The version that differs so from `seen`.
pub fn made(seen: &CommittedVersion, difference: &[u8]) -> Result<CommittedVersion, DecodeError> {
    let mut reader = Reader::new(difference);
    let before = match reader.bounded("previous certificate", 1)? {
        0 => None,
        _ => Some(Digest(reader.array("previous certificate")?)),
    };
    let (time, signature) = (reader.varint("time")?, reader.array("signature")?);
    let len = reader.bounded("signed root", SignedRoot::LIMIT as u64)? as usize;
    let patch = reader.take("patch", reader.remaining())?;
    let signed = patch::apply(patch, &base_of(seen), len).map_err(|_| invalid("patch", "does not fit"))?;
    let signed = SignedRoot::from_bytes(&signed)?;
    let (vault, number, update) = (signed.root.vault, signed.root.number, signed.update);
    let unknown = invalid("previous certificate", "is not told");
    let previous = before.or_else(|| previous(seen, number)).ok_or(unknown)?;
    let (root, server) = (signed.root.digest(), seen.certificate.server);
    let certificate = Certificate { vault, number, root, previous, update, time, server, signature };
    Ok(CommittedVersion { signed, certificate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SeenVersion;
    use towpath_vault_format::doubles::{TestKey, block, creation, members, update_of};
    use towpath_vault_format::{FileId, NodeMap, UpdateAction, VaultId, VaultRoot, apply};

    fn committed(root: VaultRoot, update: Digest, previous: Digest) -> CommittedVersion {
        let (owner, server) = (TestKey::new(1), TestKey::new(2));
        let signed = SignedRoot::sign(root, owner.node(), update, |message| owner.sign(message));
        let certificate = Certificate {
            vault: signed.root.vault,
            number: signed.root.number,
            root: signed.root.digest(),
            previous,
            update,
            time: 1_795_000_000,
            server: server.node(),
            signature: [0; 64],
        };
        CommittedVersion { signed, certificate: certificate.sign(|message| server.sign(message)) }
    }

    /// A vault's versions: made, and one file more each.
    fn versions(count: u8) -> Vec<CommittedVersion> {
        let owner = TestKey::new(1);
        let signed = members(VaultId([3; 16]), &owner, &[], &[]);
        let members = signed.members.clone();
        let first = creation(VaultId([3; 16]), 4, signed);
        let mut store = NodeMap::default();
        let mut root = apply(&first, None, &store).unwrap().root;
        let mut versions = vec![committed(root.clone(), first.digest(), Digest::NONE)];
        for number in 1..count {
            let (tuple, new) = block(&[number; 40], number.into());
            let insert = vec![UpdateAction::Insert { at: 0, tuples: vec![tuple] }];
            let update = update_of(&root, owner.node(), FileId([number; 16]), insert, vec![new]);
            let made = apply(&update, Some((&root, &members)), &store).unwrap();
            made.nodes.into_iter().for_each(|node| store.insert(node.bytes));
            root = made.root;
            let previous = versions.last().unwrap().certificate.digest();
            versions.push(committed(root.clone(), update.digest(), previous));
        }
        versions
    }

    #[test]
    fn the_next_one_and_any_other_are_made_again_and_short() {
        let versions = versions(5);
        for seen in &versions {
            for newest in &versions {
                let difference = difference(seen, newest).unwrap();
                assert_eq!(made(seen, &difference), Ok(newest.clone()));
                assert!((0..difference.len()).all(|end| made(seen, &difference[..end]).is_err()));
            }
        }
        let (whole, short) = (versions[4].to_bytes(), difference(&versions[3], &versions[4]).unwrap());
        assert!(short.len() + 300 < whole.len(), "{} of {} bytes", short.len(), whole.len());
        assert_ne!(SeenVersion::of(&versions[3]), SeenVersion::of(&versions[4]));
    }

    #[test]
    fn on_another_version_it_is_nothing_that_is_signed() {
        let versions = versions(4);
        let short = difference(&versions[2], &versions[3]).unwrap();
        for other in &versions[..2] {
            assert!(made(other, &short).map_or(true, |made| !made.signed.is_signed()));
        }
    }
}
