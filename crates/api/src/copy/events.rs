//! Events of a copy while it goes on, and its summary.
//!
//! [`CopyEvent`]s are what `--json` prints, one object a line. Names are bytes: as text where they are UTF-8, else as
//! the list of their bytes.

use serde::{Deserialize, Serialize};

pub use crate::messages::FileTime;
use crate::messages::{Searched, Seconds};
use crate::metadata::Dropped;
use crate::names;
use crate::sources::SourceList;

/// Something that happened during a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// An entry was made or changed, or would be in a dry run.
    Item {
        /// Changes, as rsync's `%i` has it: `YXcstpoguax`.
        #[serde(with = "letters")]
        changes: [u8; 11],
        /// Relative to the transfer's root, as rsync prints it: directories end with a slash.
        #[serde(with = "names::name")]
        path: Vec<u8>,
        /// Target of a symbolic link, or the first name of a hard link.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "names::option")]
        target: Option<Vec<u8>>,
        /// Bytes of its content.
        size: u64,
        /// Its time of last modification, at the source.
        modified: FileTime,
    },
    /// An entry was removed, or would be in a dry run.
    Deleted {
        /// Relative to the transfer's root, without a slash at the end.
        #[serde(with = "names::name")]
        path: Vec<u8>,
        /// It was a directory.
        is_dir: bool,
    },
    /// An entry could not be copied, or was left out; the others go on.
    #[serde(rename = "file_failed")]
    Failed {
        /// Relative to the transfer's root.
        #[serde(with = "names::name")]
        path: Vec<u8>,
        /// The error.
        error: String,
        /// Advice on what to do next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// Its meaning for the outcome.
        kind: FailureKind,
    },
    /// Progress of the copy; about five a second.
    #[serde(rename = "transfer")]
    Progress {
        /// Bytes that are there.
        done: u64,
        /// Bytes of all files known so far that have to come; grows while the scan runs.
        expected: u64,
        /// Files complete.
        files_done: u64,
        /// Entries that the scan has seen.
        files_seen: u64,
        /// Bytes by where they came from.
        sources: SourceList,
        /// Trouble that is in the way at the moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<String>,
    },
    /// Nothing comes from the other machine; it is tried on.
    Waiting {
        /// The machine, and why, for people.
        what: String,
        /// Time for which it is tried, if nothing comes; absent: until it comes or ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
}

/// Meaning of one entry's failure for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It was there when the scan came by, and no longer when it was read.
    Vanished,
    /// It could not be read or written.
    Other,
    /// It is of a kind that is left out unless asked for: named, but not an error.
    Skipped,
}

/// Entries by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Devices.
    pub devices: u64,
    /// FIFOs and sockets.
    pub specials: u64,
}

impl Counts {
    /// All of them; not more than there are numbers, whatever the other side said.
    pub const fn total(&self) -> u64 {
        let things = self.files.saturating_add(self.directories).saturating_add(self.links);
        things.saturating_add(self.devices).saturating_add(self.specials)
    }
}

/// Summary of what a copy did, or would do in a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CopySummary {
    /// Entries of the source, as far as they were to be copied.
    pub seen: Counts,
    /// Entries made at the destination that were not there before.
    pub created: Counts,
    /// Entries removed at the destination.
    pub deleted: Counts,
    /// Regular files whose content was brought up to date.
    pub transferred: u64,
    /// Bytes of all files and links of the source.
    pub total_size: u64,
    /// Bytes of the files whose content was brought up to date.
    pub transferred_size: u64,
    /// Bytes of content that came from the source.
    pub literal: u64,
    /// Bytes of content that the destination had.
    pub matched: u64,
    /// Bytes kept from an earlier, interrupted run.
    pub kept: u64,
    /// All bytes sent to the other side.
    pub sent: u64,
    /// All bytes received from the other side.
    pub received: u64,
    /// Bytes of content by where they came from.
    pub sources: SourceList,
    /// Search of the receiver's disk, if it could be searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Searched>,
    /// Entries that could not be copied or removed, those that vanished excepted.
    pub failed: u64,
    /// Entries that vanished while they were to be read.
    pub vanished: u64,
    /// Entries of kinds that are left out unless asked for.
    pub skipped: u64,
    /// Metadata that was not carried over as nobody asked for it.
    #[serde(skip_serializing_if = "Dropped::is_none")]
    pub dropped: Dropped,
    /// A limit, `max_delete` or the guard of half the destination, stopped deletions.
    pub max_delete_reached: bool,
    /// Seconds it took.
    pub seconds: Seconds,
}

/// The eleven letters as text.
mod letters {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(letters: &[u8; 11], serializer: S) -> Result<S::Ok, S::Error> {
        String::from_utf8_lossy(letters).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 11], D::Error> {
        let text = String::deserialize(deserializer)?;
        let letters = <[u8; 11]>::try_from(text.as_bytes()).ok();
        // They come from a stranger and are printed as they are.
        let letters = letters.filter(|letters| letters.iter().all(|byte| matches!(byte, b' '..=b'~')));
        letters.ok_or_else(|| D::Error::custom("changes are eleven printable letters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::SourceBytes;

    fn item(path: &[u8], target: Option<&[u8]>) -> CopyEvent {
        CopyEvent::Item {
            changes: *b">f+++++++++",
            path: path.to_vec(),
            target: target.map(<[u8]>::to_vec),
            size: 7,
            modified: FileTime { seconds: -1, nanos: 999_999_999 },
        }
    }

    #[test]
    fn every_event_comes_back_from_its_line_as_it_was() {
        let path = Some("host".to_owned());
        let from_host = SourceBytes { kind: "peer".into(), node: None, path, bytes: 1 };
        let events = [
            item(b"a/b", None),
            item(b"\xff", Some(b"x\ny")),
            CopyEvent::Deleted { path: b"d".to_vec(), is_dir: true },
            CopyEvent::Failed {
                path: b"x".to_vec(),
                error: "no permission".into(),
                hint: None,
                kind: FailureKind::Vanished,
            },
            CopyEvent::Progress {
                done: 1,
                expected: 2,
                files_done: 3,
                files_seen: 4,
                sources: SourceList(vec![from_host]),
                trouble: Some("slow".into()),
            },
            CopyEvent::Waiting { what: "ssh to box".into(), seconds: None },
            CopyEvent::Waiting { what: "box".into(), seconds: Some(58) },
        ];
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<CopyEvent>(&line).unwrap(), event, "{line}");
        }
    }

    #[test]
    fn an_item_reads_well() {
        assert_eq!(
            serde_json::to_string(&item(b"a", Some(b"\xff"))).unwrap(),
            r#"{"event":"item","changes":">f+++++++++","path":"a","target":[255],"size":7,"modified":{"seconds":-1,"nanos":999999999}}"#
        );
    }

    #[test]
    fn letters_that_would_paint_the_terminal_are_refused() {
        let line = serde_json::to_string(&item(b"a", None)).unwrap();
        for bad in [">f", "\\u001b[31m++++++", ">f++++++++++"] {
            let line = line.replace(">f+++++++++", bad);
            assert!(serde_json::from_str::<CopyEvent>(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_summary_of_another_version_is_understood() {
        assert_eq!(serde_json::from_str::<CopySummary>("{\"new\":1}").unwrap(), CopySummary::default());
    }
}
