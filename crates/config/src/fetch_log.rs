//! Who fetched what from this machine: lines of one file in the state folder, which all processes of a home append to. It is a help
//! for its owner: what is old goes, and what can't be written is missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towpath_content::NodeId;

/// A longer file becomes the older one of two: some 4,000 lines.
const MAX_LEN: u64 = 1 << 20;
/// Characters of an address or an id, at most.
const MAX_WORD: usize = 128;

/// How a fetch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FetchOutcome {
    /// The receiver went away.
    BrokenOff,
    /// Something could not be sent, and the receiver gave up.
    Failed,
    /// The receiver has what it wanted, which was not all, or not all could be had.
    Part,
    /// The receiver has all of it.
    Whole,
}

impl FetchOutcome {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::BrokenOff, "broken_off"),
        (Self::Failed, "failed"),
        (Self::Part, "part"),
        (Self::Whole, "whole"),
    ];

    /// Its name in records and in JSON.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, name)| name)
    }

    fn of(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(outcome, _)| *outcome)
    }
}

/// A fetch that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchNote {
    /// The object that the ticket names.
    pub oid: String,
    /// The mark of the ticket; none where that is not known.
    pub ticket: Option<u64>,
    /// The receiver.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// Its end, in seconds since 1970.
    pub at: u64,
    /// How it ended.
    pub outcome: FetchOutcome,
    /// Bytes that were sent.
    pub bytes: u64,
}

/// A node that fetched something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// The mark of the ticket by which it did, if that is known.
    pub ticket: Option<u64>,
    /// The node.
    pub node: NodeId,
    /// Its address, the last time.
    pub address: String,
    /// The last time, in seconds since 1970.
    pub at: u64,
    /// The best of its outcomes.
    pub outcome: FetchOutcome,
    /// Bytes that were sent, in all.
    pub bytes: u64,
    /// Times that it fetched.
    pub times: u64,
}

/// See the head of this module.
#[derive(Debug, Clone)]
pub struct FetchLog {
    file: PathBuf,
}

impl FetchLog {
    /// The file is in the folder `state`, which is made when needed.
    pub fn new(state: &Path) -> Self {
        Self { file: state.join("fetched.jsonl") }
    }

    fn older(&self) -> PathBuf {
        self.file.with_extension("jsonl.old")
    }

    /// Appends a line; one write, so that those of several processes do not mix.
    pub fn append(&self, note: &FetchNote) -> std::io::Result<()> {
        let FetchNote { oid, ticket, node, address, at, outcome, bytes } = note;
        let line = json!({
            "oid": oid, "ticket": ticket, "node": node.to_string(), "address": address, "at": at, "outcome": outcome.name(), "bytes": bytes,
        });
        if let Some(folder) = self.file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        // Of two processes that find it full one moves it; the other may append to the older one a moment longer.
        if file.metadata()?.len() > MAX_LEN && file.try_lock().is_ok() {
            let is_the_one = fs::metadata(&self.file)?.len() > MAX_LEN;
            is_the_one.then(|| fs::rename(&self.file, self.older())).transpose()?;
        }
        Ok(())
    }

    /// All that is known, by object, node and ticket, in the order of nodes.
    pub fn read(&self) -> BTreeMap<String, Vec<Receiver>> {
        let texts =
            [self.older(), self.file.clone()].map(|file| fs::read_to_string(file).unwrap_or_default());
        let mut all: BTreeMap<(String, NodeId, Option<u64>), Receiver> = BTreeMap::new();
        for note in texts.iter().flat_map(|text| text.lines()).filter_map(note) {
            let FetchNote { oid, ticket, node, address, at, outcome, bytes } = note;
            let first = Receiver { ticket, node, address: String::new(), at, outcome, bytes: 0, times: 0 };
            let receiver = all.entry((oid, node, ticket)).or_insert(first);
            receiver.outcome = receiver.outcome.max(outcome);
            (receiver.address, receiver.at) = (address, receiver.at.max(at));
            (receiver.bytes, receiver.times) = (receiver.bytes.saturating_add(bytes), receiver.times + 1);
        }
        let mut by_object: BTreeMap<String, Vec<Receiver>> = BTreeMap::new();
        all.into_iter().for_each(|((oid, ..), receiver)| by_object.entry(oid).or_default().push(receiver));
        by_object
    }
}

fn note(line: &str) -> Option<FetchNote> {
    let record: Value = serde_json::from_str(line).ok()?;
    let word = |name| Some(record.get(name)?.as_str()?.to_owned()).filter(|word| word.len() <= MAX_WORD);
    let number = |name| record.get(name)?.as_u64();
    Some(FetchNote {
        oid: word("oid")?,
        ticket: number("ticket"),
        node: word("node")?.parse().ok()?,
        address: word("address")?,
        at: number("at")?,
        outcome: FetchOutcome::of(&word("outcome")?)?,
        bytes: number("bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(node: u8, at: u64, outcome: FetchOutcome) -> FetchNote {
        FetchNote {
            oid: "blake3:ab".into(),
            ticket: Some(7),
            node: NodeId([node; 32]),
            address: format!("192.0.2.{at}"),
            at,
            outcome,
            bytes: 5,
        }
    }

    #[test]
    fn each_receiver_is_told_once_with_the_best_that_it_got() {
        let folder = tempfile::tempdir().unwrap();
        let log = FetchLog::new(&folder.path().join("state"));
        assert!(log.read().is_empty());
        for note in [
            fetch(1, 3, FetchOutcome::BrokenOff),
            fetch(1, 4, FetchOutcome::Whole),
            fetch(1, 5, FetchOutcome::Part),
            fetch(2, 6, FetchOutcome::Failed),
        ] {
            log.append(&note).unwrap();
        }
        log.append(&FetchNote { ticket: Some(8), ..fetch(3, 1, FetchOutcome::Whole) }).unwrap();
        log.append(&FetchNote { oid: "live:x".into(), ..fetch(1, 1, FetchOutcome::Part) }).unwrap();
        let all = log.read();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["blake3:ab", "live:x"]);
        let one = Receiver {
            ticket: Some(7),
            node: NodeId([1; 32]),
            address: "192.0.2.5".into(),
            at: 5,
            outcome: FetchOutcome::Whole,
            bytes: 15,
            times: 3,
        };
        assert_eq!(all["blake3:ab"][0], one);
        let tickets: Vec<_> = all["blake3:ab"].iter().map(|receiver| receiver.ticket).collect();
        assert_eq!(tickets, [Some(7), Some(7), Some(8)]);
    }

    #[test]
    fn damaged_lines_are_passed_over_and_the_file_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let log = FetchLog::new(folder.path());
        fs::write(&log.file, "nonsense\n{}\n{\"oid\":7}\n\n").unwrap();
        assert!(log.read().is_empty());
        let line = fetch(1, 1, FetchOutcome::Whole);
        for at in 0..20_000 {
            log.append(&FetchNote { at, ..line.clone() }).unwrap();
        }
        let len = |file: &Path| fs::metadata(file).unwrap().len();
        assert!(len(&log.file) < MAX_LEN && len(&log.older()) < MAX_LEN + 1000);
        let all = log.read();
        let receiver = &all["blake3:ab"][0];
        assert!(receiver.at == 19_999 && receiver.times < 20_000, "the oldest are gone: {receiver:?}");
    }
}
