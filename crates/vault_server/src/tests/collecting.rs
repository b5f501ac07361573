//! Garbage of dropped versions, on a real disk.

use std::path::Path;
use std::sync::Arc;

use towpath_byte_store::{ByteStore, LocalFiles, PlaceOwner};
use towpath_link::Identity;
use towpath_vault_format::doubles::{TestKey, update_of};
use towpath_vault_format::{Canonical, Digest, DropStatement, DroppedRange, TupleWalk, UpdateAction};

use super::writer::{FILE, SignedUpdate, TestWriter, VAULT, commit, content_of};
use crate::log::LogFile;
use crate::vault::{Vault, VaultLimits};

fn open(folder: &Path) -> Vault {
    let packs = Arc::new(LocalFiles::new(&folder.join("packs")));
    packs.claim(&PlaceOwner([1; 16]), true).unwrap();
    let medium = LogFile::at(&folder.join("vault.log")).unwrap();
    Vault::open(Box::new(medium), packs, VaultLimits::default()).unwrap()
}

/// Bytes of all files in a folder and those below it.
fn on_disk(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => on_disk(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    sizes.sum()
}

/// A version in which the file has only its first run.
pub(super) fn shortened(writer: &TestWriter) -> SignedUpdate {
    let root = writer.root.as_ref().unwrap();
    let file = root.file(&FILE).unwrap();
    let first = TupleWalk::new(&writer.nodes, 4, file, 0..1, 9).next().unwrap().unwrap().1;
    let kept = writer.content[..first.length as usize].to_vec();
    let replace = vec![UpdateAction::Replace { tuples: vec![first] }];
    writer.sign(update_of(root, writer.key.node(), FILE, replace, Vec::new()), kept, Vec::new())
}

pub(super) fn statement(number: u64, last: u64) -> DropStatement {
    let (deleter, dropped) = (TestKey::new(50), vec![DroppedRange { first: 0, last }]);
    let statement =
        DropStatement { vault: VAULT, number, dropped, deleter: deleter.node(), signature: [0; 64] };
    statement.sign(|message| deleter.sign(message))
}

#[test]
fn what_only_dropped_versions_had_is_given_back_and_all_else_stays() {
    let (server, folder) = (Identity::generate().unwrap(), tempfile::tempdir().unwrap());
    let (mut vault, mut writer) = (open(folder.path()), TestWriter::new(1));
    writer.members.deleter = Some(TestKey::new(50).node());
    let mut add = |vault: &mut Vault, make: &dyn Fn(&mut TestWriter) -> SignedUpdate| {
        let version = make(&mut writer);
        commit(vault, &version, &server).unwrap();
        let told = (version.root.clone(), version.content.clone());
        writer.committed(version);
        told
    };
    add(&mut vault, &|writer| writer.creation());
    // A pack of which a tenth will be needed, and blocks in a record of which none will.
    add(&mut vault, &|writer| writer.insertion(0, &[100_000, 500_000, 400_000]));
    add(&mut vault, &|writer| writer.insertion(200_000, &[90_000]));
    let short = add(&mut vault, &|writer| shortened(writer));
    let last = add(&mut vault, &|writer| writer.insertion(5, &[300]));
    let before = on_disk(folder.path());
    let nothing = vault.collect().unwrap();
    assert!(nothing.after >= 1_090_000, "nothing was dropped: {nothing:?}");
    vault.drop_versions(statement(0, 2)).unwrap();
    let collected = vault.collect().unwrap();
    assert!(collected.after < 130_000 && collected.before > 1_090_000, "{collected:?}");
    let after = on_disk(folder.path());
    assert!(after < 130_000 && before > 1_090_000, "{before} bytes, then {after}");
    for round in 0..3 {
        for (root, content) in [&short, &last] {
            assert!(content_of(&vault, root) == *content, "round {round}");
        }
        assert!(vault.update(2).is_err() && vault.update(3).is_ok());
        // Roots of dropped versions stay: they prove the ones behind them.
        assert_eq!(vault.root(2).unwrap().signed.root.digest(), vault.root(3).unwrap().signed.root.previous);
        assert_eq!(vault.versions(u64::MAX, 9).len(), 2 + round);
        if round == 1 {
            drop(vault);
            vault = open(folder.path());
        }
        // What went can come again.
        let again = add(&mut vault, &|writer| writer.insertion(0, &[500]));
        assert!(content_of(&vault, &again.0) == again.1);
        vault.collect().unwrap();
    }
    vault.drop_versions(statement(1, 3)).unwrap();
    assert!(vault.object(&Digest([1; 32])).unwrap().is_none());
}

/// Versions are written at each step of a collection, of blocks that only dropped versions had, too.
#[test]
fn what_is_written_while_garbage_is_collected_stays() {
    let (server, folder) = (Identity::generate().unwrap(), tempfile::tempdir().unwrap());
    let (mut vault, mut writer) = (open(folder.path()), TestWriter::new(1));
    writer.members.deleter = Some(TestKey::new(50).node());
    let lens: Vec<usize> = (0..2500).map(|len| 100 + len).collect();
    for is_first in [true, false] {
        let version = if is_first { writer.creation() } else { writer.insertion(0, &lens) };
        commit(&mut vault, &version, &server).unwrap();
        writer.committed(version);
    }
    let large = writer.root.clone().unwrap();
    let all = TupleWalk::new(&writer.nodes, 4, large.file(&FILE).unwrap(), 0..u64::MAX, 9999);
    let all: Vec<_> = all.map(|run| run.unwrap().1).collect();
    // The nodes of so many runs are looked at in several steps.
    for is_first in [true, false] {
        let version = if is_first { shortened(&writer) } else { writer.insertion(0, &[12; 1600]) };
        commit(&mut vault, &version, &server).unwrap();
        writer.committed(version);
    }
    let content = content_of(&vault, &large);
    vault.drop_versions(statement(0, 1)).unwrap();
    let mut collection = crate::vault::Collection::begin(&vault).unwrap();
    let (mut steps, mut written, mut at) = (0, Vec::new(), all[0].length as usize);
    loop {
        let is_done = collection.step(&vault).unwrap();
        steps += 1;
        // One more of the blocks that go.
        let tuple = all[steps].clone();
        let next = [&writer.content[..], &content[at..at + tuple.length as usize]].concat();
        let insert =
            vec![UpdateAction::Insert { at: writer.content.len() as u64, tuples: vec![tuple.clone()] }];
        let root = writer.root.as_ref().unwrap();
        let version =
            writer.sign(update_of(root, writer.key.node(), FILE, insert, Vec::new()), next, Vec::new());
        commit(&mut vault, &version, &server).unwrap();
        written.push((version.root.clone(), version.content.clone()));
        writer.committed(version);
        at += tuple.length as usize;
        if is_done {
            break;
        }
        collection.write_pack().unwrap();
    }
    assert!(steps > 2, "versions came in the midst of it");
    vault.drop_versions(statement(1, 2)).unwrap();
    let collected = collection.finish(&mut vault).unwrap();
    assert!(collected.after < collected.before / 4, "{collected:?} after {steps} steps");
    for round in 0..3 {
        for (root, content) in &written {
            assert!(content_of(&vault, root) == *content, "round {round}, version {}", root.number);
        }
        assert!(
            vault.object(&all[all.len() - 1].chain[0].hash).unwrap().is_none(),
            "what nobody named again is gone"
        );
        match round {
            0 => drop(std::mem::replace(&mut vault, open(tempfile::tempdir().unwrap().path()))),
            _ => drop(vault.collect().unwrap()),
        }
        if round == 0 {
            vault = open(folder.path());
        }
    }
}

#[test]
fn what_could_go_is_told_before_it_does() {
    let (server, folder) = (Identity::generate().unwrap(), tempfile::tempdir().unwrap());
    let (mut vault, mut writer) = (open(folder.path()), TestWriter::new(1));
    writer.members.deleter = Some(TestKey::new(50).node());
    for round in 0..3 {
        let version = match round {
            0 => writer.creation(),
            1 => writer.insertion(0, &[3_000, 500_000, 400_000]),
            _ => shortened(&writer),
        };
        commit(&mut vault, &version, &server).unwrap();
        writer.committed(version);
    }
    let usage = |vault: &Vault, last: Option<u64>| {
        let dropped: Vec<_> = last.map(|last| DroppedRange { first: 0, last }).into_iter().collect();
        let mut survey = crate::vault::Survey::of(vault, &dropped);
        while !survey.step(vault).unwrap() {}
        survey.usage(vault)
    };
    let (now, without) = (usage(&vault, None), usage(&vault, Some(1)));
    assert!(now.needless == 0 && now.stored >= 903_000, "{now:?}");
    assert!(without.stored == now.stored && (900_000..910_000).contains(&without.needless), "{without:?}");
    assert_eq!(usage(&vault, Some(u64::MAX)), without, "the newest stays");
    vault.drop_versions(statement(0, 1)).unwrap();
    assert_eq!(usage(&vault, None).needless, without.needless);
    vault.collect().unwrap();
    let after = usage(&vault, None);
    assert!(after.needless == 0 && now.stored - after.stored >= without.needless, "{after:?}");
}
