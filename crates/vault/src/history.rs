//! Which versions a vault still has. A server says it, and for each that is missing it has to show the word by which it was dropped.

use std::collections::HashSet;
use std::ops::Range;

use towpath_vault_format::{DropStatement, Members};

use crate::error::VaultClientError;
use crate::head::VaultHead;
use crate::server::RemoteVault;

/// The most statements of a vault that are read.
const MAX_STATEMENTS: usize = 1 << 20;

/// Numbers of the versions before number `before` that were not dropped, the newest first, `most` of them at most.
pub fn kept(
    server: &mut dyn RemoteVault,
    head: &VaultHead,
    before: u64,
    most: u64,
) -> Result<Vec<u64>, VaultClientError> {
    let before = before.min(head.named().number.saturating_add(1));
    let (mut kept, mut end) = (Vec::new(), before);
    while (kept.len() as u64) < most && end > 0 {
        let some = server.kept(end, most - kept.len() as u64)?;
        // They fall, so this ends.
        let falls = some.iter().zip(std::iter::once(&end).chain(&some)).all(|(next, last)| next < last);
        end = some.last().copied().filter(|_| falls).unwrap_or(0);
        kept.extend(some.into_iter().filter(|_| falls));
    }
    check_gaps(server, head, end..before, &kept.iter().copied().collect())?;
    Ok(kept)
}

/// Makes sure that a deleter dropped whatever is not `there`.
fn check_gaps(
    server: &mut dyn RemoteVault,
    head: &VaultHead,
    mut numbers: Range<u64>,
    there: &HashSet<u64>,
) -> Result<(), VaultClientError> {
    // A head that is remembered may be newer than all that the server has.
    let is_gap = |number: &u64| *number != head.named().number && !there.contains(number);
    let Some(first) = numbers.find(is_gap) else { return Ok(()) };
    let statements = statements(server, &head.members.members)?;
    let is_dropped = |number: &u64| statements.iter().any(|statement| statement.covers(*number));
    match (first..numbers.end).filter(is_gap).find(|number| !is_dropped(number)) {
        Some(number) => Err(VaultClientError::Hidden { number }),
        None => Ok(()),
    }
}

/// All words by which versions were dropped, each the deleter's.
pub fn statements(
    server: &mut dyn RemoteVault,
    members: &Members,
) -> Result<Vec<DropStatement>, VaultClientError> {
    let mut statements: Vec<DropStatement> = Vec::new();
    while statements.len() < MAX_STATEMENTS {
        match server.statements(statements.len() as u64)? {
            some if some.is_empty() => break,
            some => statements.extend(some),
        }
    }
    if statements.iter().zip(0..).all(|(it, number)| it.number == number && it.is_valid(members)) {
        return Ok(statements);
    }
    let why = "one is not by who may drop versions";
    Err(VaultClientError::record_of("the words by which versions were dropped", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use towpath_vault_format::doubles::{TestKey, creation, members};
    use towpath_vault_format::tree::NodeMap;
    use towpath_vault_format::{
        Canonical, Certificate, Digest, DroppedRange, SignedMembers, SignedRoot, Update, VaultId, apply,
    };
    use towpath_vault_protocol::{CommittedVersion, VaultUsage};

    use crate::server::ServerError;

    const VAULT: VaultId = VaultId([3; 16]);
    const DELETER: u8 = 50;

    /// A server that lists what it likes.
    struct ListingServer {
        listed: Vec<u64>,
        statements: Vec<DropStatement>,
    }

    impl RemoteVault for ListingServer {
        fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, ServerError> {
            let older = self.listed.iter().copied().filter(|number| *number < before);
            // Pages are short.
            Ok(older.take(most.min(2) as usize).collect())
        }

        fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ServerError> {
            Ok(self.statements.iter().skip(first as usize).take(1).cloned().collect())
        }

        fn head(&mut self) -> Result<Option<CommittedVersion>, ServerError> {
            Ok(None)
        }

        fn versions(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ServerError> {
            Ok(vec![None; numbers.len()])
        }

        fn update(&mut self, _: u64) -> Result<Option<Bytes>, ServerError> {
            Ok(None)
        }

        fn objects(&mut self, names: &[Digest]) -> Result<Vec<Option<Vec<u8>>>, ServerError> {
            Ok(vec![None; names.len()])
        }

        fn usage(&mut self, _: &[DroppedRange]) -> Result<VaultUsage, ServerError> {
            Ok(VaultUsage { stored: 0, needless: 0 })
        }

        fn drop_versions(&mut self, _: &DropStatement) -> Result<(), ServerError> {
            Ok(())
        }

        fn paths(&mut self, _: &Update) -> Result<Option<Vec<Vec<u8>>>, ServerError> {
            Ok(None)
        }

        fn commit(
            &mut self,
            _: &Update,
            _: &SignedRoot,
            _: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
        ) -> Result<Option<Certificate>, ServerError> {
            Ok(None)
        }

        fn begin_commit(
            &mut self,
            _: &Update,
            _: &SignedRoot,
            _: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
        ) -> Result<(), ServerError> {
            Ok(())
        }

        fn next_commit(&mut self) -> Result<Option<Certificate>, ServerError> {
            Ok(None)
        }
    }

    fn head(number: u64) -> VaultHead {
        let owner = TestKey::new(1);
        let mut members = members(VAULT, &owner, &[], &[]).members;
        members.deleter = Some(TestKey::new(DELETER).node());
        let members = SignedMembers::sign(members, |message| owner.sign(message));
        let update = creation(VAULT, 4, members.clone());
        let mut root = apply(&update, None, &NodeMap::default()).unwrap().root;
        root.number = number;
        let certificate = Certificate {
            vault: VAULT,
            number,
            root: root.digest(),
            previous: Digest::NONE,
            update: update.digest(),
            time: 0,
            server: owner.node(),
            signature: [0; 64],
        };
        let signed = SignedRoot::sign(root, owner.node(), update.digest(), |message| owner.sign(message));
        VaultHead { signed, members, certificate }
    }

    fn dropped(number: u64, (first, last): (u64, u64), key: u8) -> DropStatement {
        let key = TestKey::new(key);
        let dropped = vec![DroppedRange { first, last }];
        let statement =
            DropStatement { vault: VAULT, number, dropped, deleter: key.node(), signature: [0; 64] };
        statement.sign(|message| key.sign(message))
    }

    #[test]
    fn a_version_that_nobody_dropped_is_missed() {
        let listed = vec![9, 8, 7, 4, 3];
        let with = |statements: &[DropStatement], before, most| {
            let mut server = ListingServer { listed: listed.clone(), statements: statements.to_vec() };
            kept(&mut server, &head(9), before, most)
        };
        assert_eq!(with(&[], u64::MAX, 3).unwrap(), [9, 8, 7], "nothing older was asked for");
        let hidden = |found: Result<Vec<u64>, VaultClientError>| match found {
            Err(VaultClientError::Hidden { number }) => number,
            found => panic!("{found:?}"),
        };
        assert_eq!(hidden(with(&[], u64::MAX, 4)), 5);
        let early = dropped(0, (0, 2), DELETER);
        assert_eq!(hidden(with(std::slice::from_ref(&early), u64::MAX, 9)), 5);
        let all = [early, dropped(1, (5, 6), DELETER)];
        assert_eq!(with(&all, u64::MAX, 9).unwrap(), listed);
        assert_eq!(with(&all, 5, 9).unwrap(), [4, 3]);
        for forged in [dropped(1, (5, 6), 1), dropped(0, (5, 6), DELETER)] {
            let found = with(&[all[0].clone(), forged], u64::MAX, 9);
            assert!(matches!(found, Err(VaultClientError::Record { .. })), "{found:?}");
        }
    }

    #[test]
    fn a_list_that_does_not_fall_is_none() {
        let mut server = ListingServer { listed: vec![7, 8, 8], statements: Vec::new() };
        assert!(matches!(kept(&mut server, &head(9), 9, 9), Err(VaultClientError::Hidden { .. })));
    }

    #[test]
    fn a_head_that_is_remembered_need_not_be_there() {
        let mut server = ListingServer { listed: vec![1, 0], statements: Vec::new() };
        assert_eq!(kept(&mut server, &head(2), 3, 9).unwrap(), [1, 0]);
    }
}
