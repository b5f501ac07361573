//! What an owner does beside putting: old versions are dropped, members come and go. And what becomes of who may not.

use towpath_vault::error::VaultClientError;
use towpath_vault::garbage::collect;
use towpath_vault::put::PutOptions;
use towpath_vault::server::ServerError;
use towpath_vault::share::{MemberRole, revoke, share};

use crate::served::Lie;
use crate::world::{OWNERS, World};

impl World {
    /// Whoever is no member, or no more, gets nothing.
    pub(crate) fn stranger(&mut self, machine: usize, name: &str) {
        let (way, ..) = self.way();
        let path = self.machines[machine].path("got");
        let got = self
            .open(machine, way)
            .and_then(|mut vault| vault.get(name.as_bytes(), None, &path, true, &mut |_| ()));
        let is_refused = matches!(got, Err(VaultClientError::Server(ServerError::Refused(_))));
        assert!(is_refused && !path.exists(), "{}: {got:?}", self.told());
        self.tally.refused += 1;
    }

    /// Who may read puts nothing.
    pub(crate) fn only_reads(&mut self, machine: usize, name: &str) {
        let (way, lie, has_lied) = self.way();
        self.edit(machine, name);
        let (path, options) = (self.machines[machine].path(name), PutOptions::default());
        let put = self
            .open(machine, way)
            .and_then(|mut vault| vault.put(&path, name.as_bytes(), &options, &mut |_| ()));
        let told = format!("{}: machine {machine} may not put {name}, {lie:?}: {put:?}", self.told());
        let is_hidden = has_lied.get() && lie == Lie::OldHead;
        match put {
            Err(VaultClientError::ReadOnly) => {
                self.tally.refused += 1;
                self.note_looked(machine, is_hidden);
            }
            // By an older version it may write, and would be told of the newest when it offers one. It comes not so far.
            Err(VaultClientError::Conflict { .. }) if is_hidden => self.note_looked(machine, true),
            Ok(put) if is_hidden && !put.is_new => self.note_looked(machine, true),
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                self.assert_named(&error, &told);
            }
            Ok(_) => panic!("{told}"),
        }
    }

    /// All but some newest versions go for good.
    pub(crate) fn drop_versions(&mut self, machine: usize) {
        let (way, lie, has_lied) = self.way();
        let keep = self.random.u64(1..12);
        let mut head = 0;
        let collected = self.open(machine, way).and_then(|mut vault| {
            head = vault.head().named().number;
            collect(&mut vault, keep)
        });
        let told = format!("{}: machine {machine} keeps {keep}, {lie:?}: {collected:?}", self.told());
        let is_hidden = has_lied.get() && lie == Lie::OldHead;
        let oldest = self.served.borrow_mut().oldest() as usize;
        let dropped = oldest.checked_sub(self.oldest).expect(&told);
        self.oldest = oldest;
        self.tally.dropped += dropped;
        match collected {
            Ok(collected) => {
                let (newest, kept) = (self.versions.len() as u64 - 1, head + 1 - keep.min(head + 1));
                assert!(head == newest || is_hidden && head + 1 == newest, "{told}");
                assert!(oldest as u64 == kept.max((oldest - dropped) as u64), "{told}: from {oldest} on");
                assert_eq!((collected.dropped, collected.nameless), (dropped as u64, 0), "{told}");
                self.note_looked(machine, is_hidden);
            }
            Err(VaultClientError::NotADeleter) if !self.machines[machine].is_owner() => {
                assert_eq!(dropped, 0, "{told}");
                self.tally.refused += 1;
            }
            Err(error) => {
                assert!(has_lied.get() && dropped == 0, "{told}");
                self.tally.named += 1;
                self.assert_named(&error, &told);
            }
        }
    }

    /// A member gets rights, other ones, or none any more.
    pub(crate) fn change_members(&mut self, machine: usize) {
        let member = self.random.usize(OWNERS..self.machines.len());
        let node = self.machines[member].node();
        let wanted = [None, Some(MemberRole::Reader), Some(MemberRole::Writer)][self.random.usize(..3)];
        let (way, lie, has_lied) = self.way();
        let changed = self.open(machine, way).and_then(|mut vault| match wanted {
            None => revoke(&mut vault, node).map(|()| true),
            Some(role) => share(&mut vault, node, role == MemberRole::Writer),
        });
        let was = self.machines[member].role;
        let told = format!(
            "{}: machine {machine} makes {was:?} {member} {wanted:?}, {lie:?}: {changed:?}",
            self.told()
        );
        let newest = self.served.borrow_mut().newest() as usize;
        let is_done = newest + 1 > self.versions.len();
        if is_done {
            assert!(self.machines[machine].is_owner(), "{told}");
            self.versions.push(self.versions.last().unwrap().clone());
            self.machines[member].role = wanted;
            self.tally.committed += 1;
        }
        let is_hidden = has_lied.get() && lie == Lie::OldHead;
        match changed {
            Ok(true) if lie == Lie::Claimed && has_lied.get() => self.assert_found_out(machine, &told),
            Ok(true) => {
                assert!(is_done, "{told}");
                self.machines[machine].newest = newest as u64;
            }
            // As far as this machine was shown, there is nothing to change.
            Ok(false) => {
                assert!(!is_done && (was == wanted || is_hidden), "{told}");
                self.note_looked(machine, is_hidden);
            }
            Err(VaultClientError::NoMember(_)) => {
                assert!(!is_done && (was.is_none() || is_hidden), "{told}");
                self.note_looked(machine, is_hidden);
            }
            Err(VaultClientError::NotTheOwner) => {
                assert!(!self.machines[machine].is_owner(), "{told}");
                self.tally.refused += 1;
                self.note_looked(machine, is_hidden);
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                self.assert_named(&error, &told);
            }
        }
    }
}
