//! Events and the summary of a copy as they are written (`docs/formats/copy.md`, "Events and the summary"): what a
//! remote end reports to the person at the client.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use bytes::Bytes;
use prost::{Enumeration, Oneof};
use towpath_api::copy::{CopyEvent, CopySummary, Counts, Dropped, FailureKind, FileTime};
use towpath_api::{FileDelta, Searched, Seconds, SourceBytes, SourceList};

use super::{MOST_SOURCES, violation};
use crate::error::CopyError;

/// Sources and bottlenecks that a summary names, each.
pub const MOST_LISTED: usize = 1024;
/// Files that a summary names that came as deltas.
pub const MOST_DELTAS: usize = 64;
/// Longest text of a source, and path of such a file, in bytes.
pub const LONGEST_NAME: usize = 512;

/// An event for the person.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CopyReport {
    #[prost(oneof = "ReportKind", tags = "1, 2, 3, 4, 5")]
    kind: Option<ReportKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReportKind {
    #[prost(message, tag = "1")]
    Item(WrittenItem),
    #[prost(message, tag = "2")]
    Deleted(WrittenDeleted),
    #[prost(message, tag = "3")]
    Failed(WrittenFailed),
    #[prost(message, tag = "4")]
    Progress(WrittenProgress),
    #[prost(message, tag = "5")]
    Waiting(WrittenWaiting),
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenItem {
    #[prost(bytes = "bytes", tag = "1")]
    changes: Bytes,
    #[prost(bytes = "vec", tag = "2")]
    path: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "3")]
    target: Option<Vec<u8>>,
    #[prost(uint64, tag = "4")]
    size: u64,
    #[prost(sint64, tag = "5")]
    seconds: i64,
    #[prost(uint32, tag = "6")]
    nanos: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenDeleted {
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    #[prost(bool, tag = "2")]
    is_dir: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenFailed {
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    #[prost(string, tag = "2")]
    error: String,
    #[prost(string, optional, tag = "3")]
    hint: Option<String>,
    #[prost(enumeration = "WrittenFailure", tag = "4")]
    kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum WrittenFailure {
    Other = 0,
    Vanished = 1,
    Skipped = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenProgress {
    #[prost(uint64, tag = "1")]
    done: u64,
    #[prost(uint64, tag = "2")]
    expected: u64,
    #[prost(uint64, tag = "3")]
    files_done: u64,
    #[prost(uint64, tag = "4")]
    files_seen: u64,
    #[prost(message, repeated, tag = "5")]
    sources: Vec<WrittenSource>,
    #[prost(string, optional, tag = "6")]
    trouble: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenSource {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(uint64, tag = "2")]
    bytes: u64,
    #[prost(string, optional, tag = "3")]
    node: Option<String>,
    #[prost(string, optional, tag = "4")]
    path: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenWaiting {
    #[prost(string, tag = "1")]
    what: String,
    #[prost(uint64, optional, tag = "2")]
    seconds: Option<u64>,
}

same_fields!(WrittenSource, SourceBytes: kind, bytes, node, path);

/// The first of them, with texts of a length that is read.
fn written_sources(sources: SourceList, most: usize) -> Vec<WrittenSource> {
    sources.0.into_iter().take(most).map(|source| shortened(source).into()).collect()
}

/// As they came from a stranger.
fn read_sources(written: Vec<WrittenSource>) -> SourceList {
    SourceList(written.into_iter().map(|source| shortened(source.into())).collect())
}

/// Keeps the front of the texts.
fn shortened(mut source: SourceBytes) -> SourceBytes {
    let SourceBytes { kind, node, path, .. } = &mut source;
    let texts = std::iter::once(kind).chain(node).chain(path);
    texts.for_each(|text| text.truncate(text.floor_char_boundary(LONGEST_NAME)));
    source
}

same!(WrittenFailure, FailureKind: Other, Vanished, Skipped);

impl From<CopyEvent> for CopyReport {
    fn from(event: CopyEvent) -> Self {
        let kind = match event {
            CopyEvent::Item { changes, path, target, size, modified } => {
                let (changes, FileTime { seconds, nanos }) = (Bytes::copy_from_slice(&changes), modified);
                ReportKind::Item(WrittenItem { changes, path, target, size, seconds, nanos })
            }
            CopyEvent::Deleted { path, is_dir } => ReportKind::Deleted(WrittenDeleted { path, is_dir }),
            CopyEvent::Failed { path, error, hint, kind } => {
                let kind = WrittenFailure::from(kind).into();
                ReportKind::Failed(WrittenFailed { path, error, hint, kind })
            }
            CopyEvent::Progress { done, expected, files_done, files_seen, sources, trouble } => {
                let sources = written_sources(sources, MOST_SOURCES);
                let progress = WrittenProgress { done, expected, files_done, files_seen, sources, trouble };
                ReportKind::Progress(progress)
            }
            CopyEvent::Waiting { what, seconds } => ReportKind::Waiting(WrittenWaiting { what, seconds }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<CopyReport> for CopyEvent {
    type Error = CopyError;

    fn try_from(report: CopyReport) -> Result<Self, CopyError> {
        let unread = || violation("an event that can't be read");
        Ok(match report.kind.ok_or_else(unread)? {
            ReportKind::Item(WrittenItem { changes, path, target, size, seconds, nanos }) => {
                let changes = letters(&changes).ok_or_else(unread)?;
                Self::Item { changes, path, target, size, modified: FileTime { seconds, nanos } }
            }
            ReportKind::Deleted(WrittenDeleted { path, is_dir }) => Self::Deleted { path, is_dir },
            ReportKind::Failed(WrittenFailed { path, error, hint, kind }) => {
                let kind = WrittenFailure::try_from(kind).map_err(|_| unread())?.into();
                Self::Failed { path, error, hint, kind }
            }
            ReportKind::Progress(progress) => {
                let WrittenProgress { done, expected, files_done, files_seen, sources, trouble } = progress;
                let sources = read_sources(sources);
                Self::Progress { done, expected, files_done, files_seen, sources, trouble }
            }
            ReportKind::Waiting(WrittenWaiting { what, seconds }) => Self::Waiting { what, seconds },
        })
    }
}

/// Letters of a change that come from a stranger and are printed as they are.
fn letters(bytes: &[u8]) -> Option<[u8; 11]> {
    let letters = <[u8; 11]>::try_from(bytes).ok();
    letters.filter(|letters| letters.iter().all(|byte| matches!(byte, b' '..=b'~')))
}

/// The end of a copy at the side that sends it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndReport {
    /// Absent: the other side keeps its own.
    #[prost(message, optional, boxed, tag = "1")]
    summary: Option<Box<WrittenSummary>>,
}

impl EndReport {
    /// The end of a copy of which this was done.
    pub fn with(summary: CopySummary) -> Self {
        Self { summary: Some(Box::new(summary.into())) }
    }

    /// Summary of what was done, if there is one.
    pub fn into_summary(self) -> CopySummary {
        self.summary.map_or_else(CopySummary::default, |summary| (*summary).into())
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenSummary {
    #[prost(message, optional, tag = "1")]
    seen: Option<WrittenCounts>,
    #[prost(message, optional, tag = "2")]
    created: Option<WrittenCounts>,
    #[prost(message, optional, tag = "3")]
    deleted: Option<WrittenCounts>,
    #[prost(uint64, tag = "4")]
    transferred: u64,
    #[prost(uint64, tag = "5")]
    total_size: u64,
    #[prost(uint64, tag = "6")]
    transferred_size: u64,
    #[prost(uint64, tag = "7")]
    literal: u64,
    #[prost(uint64, tag = "8")]
    matched: u64,
    #[prost(uint64, tag = "9")]
    kept: u64,
    #[prost(uint64, tag = "10")]
    sent: u64,
    #[prost(uint64, tag = "11")]
    received: u64,
    #[prost(message, repeated, tag = "12")]
    sources: Vec<WrittenSource>,
    #[prost(message, optional, tag = "13")]
    search: Option<WrittenSearch>,
    #[prost(uint64, tag = "14")]
    failed: u64,
    #[prost(uint64, tag = "15")]
    vanished: u64,
    #[prost(uint64, tag = "16")]
    skipped: u64,
    #[prost(message, optional, tag = "17")]
    dropped: Option<WrittenDropped>,
    #[prost(bool, tag = "18")]
    max_delete_reached: bool,
    #[prost(uint64, tag = "19")]
    milliseconds: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenCounts {
    #[prost(uint64, tag = "1")]
    files: u64,
    #[prost(uint64, tag = "2")]
    directories: u64,
    #[prost(uint64, tag = "3")]
    links: u64,
    #[prost(uint64, tag = "4")]
    devices: u64,
    #[prost(uint64, tag = "5")]
    specials: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenDropped {
    #[prost(uint64, tag = "1")]
    special_bits: u64,
    #[prost(uint64, tag = "2")]
    privileged_xattrs: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenSearch {
    #[prost(uint64, tag = "1")]
    directories: u64,
    #[prost(uint64, tag = "2")]
    files: u64,
    #[prost(uint64, tag = "3")]
    hashed: u64,
    #[prost(uint64, tag = "4")]
    looked_up: u64,
    #[prost(uint64, tag = "5")]
    disk_milliseconds: u64,
    #[prost(uint64, tag = "6")]
    from_network: u64,
    #[prost(uint64, tag = "7")]
    by_delta: u64,
    #[prost(uint64, tag = "8")]
    changed: u64,
    #[prost(uint64, tag = "9")]
    by_change: u64,
    #[prost(uint64, tag = "10")]
    from_files: u64,
    #[prost(uint64, tag = "11")]
    from_index: u64,
    #[prost(uint64, tag = "12")]
    in_vain: u64,
    #[prost(bool, tag = "13")]
    limited: bool,
    #[prost(message, repeated, tag = "14")]
    bottlenecks: Vec<WrittenBottleneck>,
    #[prost(message, repeated, tag = "15")]
    deltas: Vec<WrittenFileDelta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenFileDelta {
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    base: Vec<u8>,
    #[prost(string, tag = "3")]
    why: String,
    #[prost(uint64, tag = "4")]
    made: u64,
    #[prost(uint64, tag = "5")]
    came: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenBottleneck {
    #[prost(uint64, tag = "1")]
    milliseconds: u64,
    #[prost(string, tag = "2")]
    what: String,
}

same_fields!(WrittenCounts, Counts: files, directories, links, devices, specials);
same_fields!(WrittenDropped, Dropped: special_bits, privileged_xattrs);

impl From<CopySummary> for WrittenSummary {
    fn from(summary: CopySummary) -> Self {
        Self {
            seen: Some(summary.seen.into()),
            created: Some(summary.created.into()),
            deleted: Some(summary.deleted.into()),
            transferred: summary.transferred,
            total_size: summary.total_size,
            transferred_size: summary.transferred_size,
            literal: summary.literal,
            matched: summary.matched,
            kept: summary.kept,
            sent: summary.sent,
            received: summary.received,
            sources: written_sources(summary.sources, MOST_LISTED),
            search: summary.search.map(Into::into),
            failed: summary.failed,
            vanished: summary.vanished,
            skipped: summary.skipped,
            dropped: Some(summary.dropped.into()),
            max_delete_reached: summary.max_delete_reached,
            milliseconds: summary.seconds.as_millis(),
        }
    }
}

impl From<WrittenSummary> for CopySummary {
    fn from(written: WrittenSummary) -> Self {
        Self {
            seen: written.seen.unwrap_or_default().into(),
            created: written.created.unwrap_or_default().into(),
            deleted: written.deleted.unwrap_or_default().into(),
            transferred: written.transferred,
            total_size: written.total_size,
            transferred_size: written.transferred_size,
            literal: written.literal,
            matched: written.matched,
            kept: written.kept,
            sent: written.sent,
            received: written.received,
            sources: read_sources(written.sources),
            search: written.search.map(Into::into),
            failed: written.failed,
            vanished: written.vanished,
            skipped: written.skipped,
            dropped: written.dropped.unwrap_or_default().into(),
            max_delete_reached: written.max_delete_reached,
            seconds: seconds(written.milliseconds),
        }
    }
}

impl From<Searched> for WrittenSearch {
    fn from(search: Searched) -> Self {
        let bottlenecks = search.bottlenecks.into_iter().take(MOST_LISTED);
        Self {
            directories: search.directories,
            files: search.files,
            hashed: search.hashed,
            looked_up: search.looked_up,
            disk_milliseconds: search.disk_seconds.as_millis(),
            from_network: search.from_network,
            by_delta: search.by_delta,
            changed: search.changed,
            by_change: search.by_change,
            from_files: search.from_files,
            from_index: search.from_index,
            in_vain: search.in_vain,
            limited: search.limited,
            bottlenecks: bottlenecks
                .map(|(at, what)| WrittenBottleneck { milliseconds: at.as_millis(), what })
                .collect(),
            deltas: search.deltas.into_iter().take(MOST_DELTAS).map(Into::into).collect(),
        }
    }
}

impl From<FileDelta> for WrittenFileDelta {
    fn from(FileDelta { path, base, why, made, came }: FileDelta) -> Self {
        let base = base.into_os_string().into_vec();
        Self { path: front(path), base: front(base), why, made, came }
    }
}

impl From<WrittenFileDelta> for FileDelta {
    fn from(WrittenFileDelta { path, base, why, made, came }: WrittenFileDelta) -> Self {
        Self { path: front(path), base: OsString::from_vec(front(base)).into(), why, made, came }
    }
}

/// So much of a path as is kept.
fn front(mut path: Vec<u8>) -> Vec<u8> {
    path.truncate(LONGEST_NAME);
    path
}

impl From<WrittenSearch> for Searched {
    fn from(written: WrittenSearch) -> Self {
        let bottlenecks = written.bottlenecks.into_iter();
        Self {
            directories: written.directories,
            files: written.files,
            hashed: written.hashed,
            looked_up: written.looked_up,
            disk_seconds: seconds(written.disk_milliseconds),
            from_network: written.from_network,
            by_delta: written.by_delta,
            changed: written.changed,
            by_change: written.by_change,
            from_files: written.from_files,
            from_index: written.from_index,
            in_vain: written.in_vain,
            limited: written.limited,
            bottlenecks: bottlenecks.map(|it| (seconds(it.milliseconds), it.what)).collect(),
            deltas: written.deltas.into_iter().map(Into::into).collect(),
        }
    }
}

const fn seconds(milliseconds: u64) -> Seconds {
    Seconds::from_duration(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(path: &[u8], target: Option<&[u8]>) -> CopyEvent {
        CopyEvent::Item {
            changes: *b">f+++++++++",
            path: path.to_vec(),
            target: target.map(<[u8]>::to_vec),
            size: 7,
            modified: FileTime { seconds: -1, nanos: 999_999_999 },
        }
    }

    fn source(kind: &str) -> SourceBytes {
        let (node, path) = (Some("1a2b".to_owned()), Some("host".to_owned()));
        SourceBytes { kind: kind.into(), node, path, bytes: 1 }
    }

    fn delta(path: &[u8]) -> FileDelta {
        let base = OsString::from_vec(b"/old\xff".to_vec()).into();
        FileDelta { path: path.to_vec(), base, why: "in_place".into(), made: 9, came: 2 }
    }

    fn back(event: &CopyEvent) -> CopyEvent {
        CopyReport::from(event.clone()).try_into().unwrap()
    }

    #[test]
    fn every_event_comes_back_as_it_was() {
        let failed = |kind| CopyEvent::Failed { path: b"x".to_vec(), error: "no".into(), hint: None, kind };
        let events = [
            item(b"a/b", None),
            item(b"\xff", Some(b"")),
            CopyEvent::Deleted { path: b"d".to_vec(), is_dir: true },
            failed(FailureKind::Other),
            failed(FailureKind::Vanished),
            failed(FailureKind::Skipped),
            CopyEvent::Progress {
                done: 1,
                expected: 2,
                files_done: 3,
                files_seen: 4,
                sources: SourceList(vec![source("peer")]),
                trouble: Some("slow".into()),
            },
            CopyEvent::Waiting { what: "ssh to box".into(), seconds: None },
            CopyEvent::Waiting { what: "box".into(), seconds: Some(58) },
        ];
        for event in events {
            assert_eq!(back(&event), event);
        }
    }

    #[test]
    fn a_summary_comes_back_as_it_was_and_none_is_an_empty_one() {
        let counts = Counts { files: 1, directories: 2, links: 3, devices: 4, specials: 5 };
        let search = Searched {
            directories: 1,
            files: 2,
            hashed: 3,
            looked_up: 4,
            disk_seconds: seconds(1500),
            from_network: 5,
            by_delta: 6,
            changed: 7,
            by_change: 8,
            from_files: 9,
            from_index: 10,
            in_vain: 11,
            limited: true,
            bottlenecks: vec![(seconds(20), "disk".into())],
            deltas: vec![delta(b"a\xff")],
        };
        let summary = CopySummary {
            seen: counts,
            created: Counts { files: 9, ..counts },
            deleted: Counts { links: 9, ..counts },
            transferred: 1,
            total_size: 2,
            transferred_size: 3,
            literal: 4,
            matched: 5,
            kept: 6,
            sent: 7,
            received: 8,
            sources: SourceList(vec![source("mirror")]),
            search: Some(search),
            failed: 10,
            vanished: 11,
            skipped: 12,
            dropped: Dropped { special_bits: 1, privileged_xattrs: 2 },
            max_delete_reached: true,
            seconds: seconds(1234),
        };
        assert_eq!(EndReport::with(summary.clone()).into_summary(), summary);
        assert_eq!(EndReport::default().into_summary(), CopySummary::default());
    }

    #[test]
    fn a_summary_lists_no_more_than_is_read() {
        let many = || (0..2 * MOST_LISTED).map(|number| number.to_string());
        let summary = CopySummary {
            sources: SourceList(many().map(|kind| source(&kind)).collect()),
            search: Some(Searched {
                bottlenecks: many().map(|what| (seconds(1), what)).collect(),
                deltas: many().map(|path| delta(path.repeat(LONGEST_NAME).as_bytes())).collect(),
                ..Searched::default()
            }),
            ..CopySummary::default()
        };
        let read = EndReport::with(summary).into_summary();
        assert_eq!(read.sources.0.len(), MOST_LISTED);
        let search = read.search.unwrap();
        assert_eq!((search.bottlenecks.len(), search.deltas.len()), (MOST_LISTED, MOST_DELTAS));
        assert!(search.deltas.iter().all(|delta| delta.path.len() == LONGEST_NAME));
    }

    #[test]
    fn texts_of_sources_are_as_long_as_they_may_be() {
        let long = || "é".repeat(LONGEST_NAME);
        let written = WrittenSource { kind: long(), bytes: 1, node: Some(long()), path: Some(long()) };
        let progress = WrittenProgress { sources: vec![written.clone()], ..WrittenProgress::default() };
        let report = CopyReport { kind: Some(ReportKind::Progress(progress)) };
        let CopyEvent::Progress { sources, .. } = report.try_into().unwrap() else { panic!("another event") };
        let summary = WrittenSummary { sources: vec![written], ..WrittenSummary::default() };
        let summary = CopySummary::from(summary);
        let sent = CopySummary { sources: sources.clone(), ..CopySummary::default() };
        for read in [sources, summary.sources, EndReport::with(sent).into_summary().sources] {
            let SourceBytes { kind, node, path, .. } = &read.0[0];
            let all = [Some(kind), node.as_ref(), path.as_ref()].map(|text| text.unwrap().len());
            assert_eq!(all, [LONGEST_NAME; 3]);
        }
    }

    #[test]
    fn events_that_are_none_are_refused() {
        let with = |changes: &'static [u8]| {
            let changes = Bytes::from_static(changes);
            CopyReport { kind: Some(ReportKind::Item(WrittenItem { changes, ..WrittenItem::default() })) }
        };
        let failed = ReportKind::Failed(WrittenFailed { kind: 3, ..WrittenFailed::default() });
        let odd = [
            CopyReport::default(),
            with(b">f"),
            with(b"\x1b[31m++++++"),
            with(b">f++++++++++"),
            CopyReport { kind: Some(failed) },
        ];
        for report in odd {
            assert!(CopyEvent::try_from(report.clone()).is_err(), "{report:?}");
        }
    }
}
