//! Output of `tow cp` and `tow sync`, line by line, in rsync's form where it has one.
//!
//! Names are shown as everywhere in `tow`: what could paint a terminal is escaped.

use std::os::unix::ffi::OsStrExt;

use indicatif::{HumanBytes, HumanCount};
use towpath_api::copy::{CopyEvent, CopySummary, Counts, FailureKind, Mode};
use towpath_api::{ApiError, ErrorKind, FileDelta, Searched, Seconds, SourceList, Summary};
use towpath_service::{display_name, display_text};

use crate::bar::from_source;
use crate::output::{counted, of_path};

/// Changes of the bottleneck that are shown; `--json` tells all.
const BOTTLENECKS: usize = 8;

/// Parts of a copy's output that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownChanges {
    /// Names of what changes (`-v`).
    pub names: bool,
    /// Changes of them (`-i`), by the number of times that it was given.
    pub itemize: u8,
    /// Counts and sizes at the end.
    pub stats: bool,
    /// Sources of bytes, and what was searched, at the end.
    pub explain: bool,
    /// A bar: on a terminal unless said otherwise; asked for, with names as well.
    pub progress: Option<bool>,
    /// Form of numbers: 0 plain, 1 in groups of three digits, 2 as in 1.23K, 3 the same in
    /// units of 1024.
    pub human: u8,
}

impl Default for ShownChanges {
    fn default() -> Self {
        Self { names: false, itemize: 0, stats: false, explain: false, progress: None, human: 1 }
    }
}

impl ShownChanges {
    /// True if what changes has lines.
    pub const fn lists(&self) -> bool {
        self.itemize > 0 || self.names || matches!(self.progress, Some(true))
    }
}

/// The line on standard output for an event, if it has one.
pub fn line(shown: &ShownChanges, event: &CopyEvent) -> Option<String> {
    let itemize = shown.itemize > 0;
    if !shown.lists() {
        return None;
    }
    match event {
        CopyEvent::Item { changes, path, target, .. } if itemize => {
            Some(format!("{} {}", String::from_utf8_lossy(changes), with_target(changes, path, target)))
        }
        // Like rsync without -i: what only gets another mode or time is not named, directories are.
        CopyEvent::Item { changes, .. } if changes[0] == b'.' && changes[1] != b'd' => None,
        CopyEvent::Item { changes, path, target, .. } => Some(with_target(changes, path, target)),
        CopyEvent::Deleted { path, is_dir } => {
            let verb = if itemize { "*deleting  " } else { "deleting" };
            let slash = if *is_dir { "/" } else { "" };
            Some(format!("{verb} {}{slash}", display_name(path)))
        }
        CopyEvent::Failed { .. } | CopyEvent::Progress { .. } | CopyEvent::Waiting { .. } => None,
    }
}

fn with_target(changes: &[u8; 11], path: &[u8], target: &Option<Vec<u8>>) -> String {
    let name = display_name(path);
    match target {
        None => name,
        Some(target) if changes[1] == b'L' && changes[0] != b'h' => {
            format!("{name} -> {}", display_name(target))
        }
        Some(target) => format!("{name} => {}", display_name(target)),
    }
}

/// The line on standard error for an event, if it has one.
pub fn complaint(event: &CopyEvent) -> Option<String> {
    let CopyEvent::Failed { path, error, hint, kind } = event else { return None };
    // A failure of the copy as a whole has no path.
    let path = if path.is_empty() { None } else { Some(display_name(path)) };
    let hint = hint.as_ref().map_or(String::new(), |hint| format!("; {}", display_text(hint)));
    let Some(path) = path else { return Some(format!("tow: {}{hint}", display_text(error))) };
    Some(match kind {
        FailureKind::Skipped => format!("tow: {path}: left out: {}{hint}", display_text(error)),
        FailureKind::Vanished | FailureKind::Other => format!("tow: {}{hint}", of_path(&path, error)),
    })
}

/// The lines at the end of a copy: rsync's `--stats`, its two closing lines with `-v`.
pub fn closing(shown: &ShownChanges, summary: &CopySummary, dry_run: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if shown.stats {
        lines.push(String::new());
        lines.extend(stats(shown.human, summary));
    }
    if shown.explain {
        lines.push(String::new());
        lines.extend(explanation(shown.human, &Explained::from(summary)));
    }
    if shown.stats || shown.names {
        lines.push(String::new());
        lines.extend(totals(shown.human, summary, dry_run));
    }
    lines
}

fn stats(human: u8, summary: &CopySummary) -> Vec<String> {
    let number = |value| number(human, value);
    let counts = |name: &str, counts: &Counts| format!("{name}: {}", by_kind(human, counts));
    let mut lines = vec![
        counts("Number of files", &summary.seen),
        counts("Number of created files", &summary.created),
        counts("Number of deleted files", &summary.deleted),
        format!("Number of regular files transferred: {}", number(summary.transferred)),
        format!("Total file size: {} bytes", number(summary.total_size)),
        format!("Total transferred file size: {} bytes", number(summary.transferred_size)),
        format!("Literal data: {} bytes", number(summary.literal)),
        format!("Matched data: {} bytes", number(summary.matched)),
    ];
    if summary.kept > 0 {
        lines.push(format!("Kept from an earlier run: {} bytes", number(summary.kept)));
    }
    lines.extend(by_source(human, &summary.sources));
    lines.push(format!("Total bytes sent: {}", number(summary.sent)));
    lines.push(format!("Total bytes received: {}", number(summary.received)));
    lines
}

/// A line for each source.
fn by_source(human: u8, sources: &SourceList) -> Vec<String> {
    let line = |(name, bytes): (String, u64)| {
        format!("From {}: {} bytes", display_text(&name), number(human, bytes))
    };
    sources.shown().into_iter().map(line).collect()
}

/// Parts of a summary that tell where bytes came from.
pub struct Explained<'a> {
    sources: &'a SourceList,
    kept: u64,
    search: Option<&'a Searched>,
}

impl<'a> From<&'a CopySummary> for Explained<'a> {
    fn from(summary: &'a CopySummary) -> Self {
        Self { sources: &summary.sources, kept: summary.kept, search: summary.search.as_ref() }
    }
}

impl<'a> From<&'a Summary> for Explained<'a> {
    fn from(summary: &'a Summary) -> Self {
        let search = summary.search.as_ref();
        // Of a get that is a part of what was here.
        let kept = summary.kept.saturating_sub(search.map_or(0, |search| search.by_change));
        Self { sources: &summary.sources, kept, search }
    }
}

/// Lines on where bytes came from, and why.
pub fn explanation(human: u8, summary: &Explained<'_>) -> Vec<String> {
    let number = |value| number(human, value);
    let mut lines = by_source(human, summary.sources);
    if summary.kept > 0 {
        lines.push(format!("Kept from an earlier run: {} bytes", number(summary.kept)));
    }
    let Some(search) = summary.search else {
        lines.push("Nothing was searched: it was not wanted, or nothing crossed a network".into());
        return lines;
    };
    if search.changed > 0 {
        lines.push(format!(
            "Made of older versions: {} bytes of {}",
            number(search.by_change),
            match search.changed {
                1 => "1 file".into(),
                files => format!("{} files", number(files)),
            },
        ));
        lines.extend(search.deltas.iter().map(|delta| delta_line(human, delta)));
    }
    if search.looked_up == 0 {
        lines.push(
            "Nothing was searched: the network was as fast as a search, or what came was little".into(),
        );
        return lines;
    }
    let several = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", number(count)),
    };
    lines.push(format!("Found in files that were searched: {} bytes", number(search.from_files)));
    lines.push(format!("Found in files that the index knew: {} bytes", number(search.from_index)));
    if search.by_delta > 0 {
        lines.push(format!("Made of similar regions of files here: {} bytes", number(search.by_delta)));
    }
    lines.push(format!(
        "Searched for {:.2} s: {} listed, {} read ({} bytes), {} looked up in the index",
        search.disk_seconds.as_f64(),
        several(search.directories, "directory", "directories"),
        several(search.files, "file", "files"),
        number(search.hashed),
        several(search.looked_up, "chunk", "chunks"),
    ));
    if search.limited {
        lines.push("Not all was searched, as little was found; --search-effort=all searches all".into());
    }
    if search.in_vain > 0 {
        lines.push(format!("Fetched though it was found as well: {} bytes", number(search.in_vain)));
    }
    lines.extend(held_up(&search.bottlenecks));
    lines
}

/// Line on what a transfer waited for, and since when.
/// The line for a file that came as a delta: of what, why, and what it cost.
fn delta_line(human: u8, delta: &FileDelta) -> String {
    let FileDelta { path, base, why, made, came } = delta;
    let unknown = display_text(why);
    let why = match why.as_str() {
        "in_place" => "it was in its place",
        "numbers" => "its path differs in numbers of folders",
        "path_beside" => "it has the same path in a folder beside",
        "name" => "it has the same name",
        "name_near" => "it has the same name near by",
        "name_numbers" => "its path differs in numbers",
        "kind" => "it is of the same folder and kind, and nearly as large",
        "size_and_time" => "it has the same size and time",
        "size" => "it has the same size",
        _ => &unknown,
    };
    let (path, base) = (display_name(path), display_name(base.as_os_str().as_bytes()));
    let [made, came] = [*made, *came].map(|bytes| number(human, bytes));
    format!("  {path}: {came} bytes came for {made}, as a delta of {base}: {why}")
}

fn held_up(bottlenecks: &[(Seconds, String)]) -> Option<String> {
    let parts = bottlenecks.iter().take(BOTTLENECKS);
    let parts = parts.map(|(at, what)| format!("{} (from {:.1} s on)", display_text(what), at.as_f64()));
    let mut text = parts.collect::<Vec<_>>().join(", ");
    if bottlenecks.len() > BOTTLENECKS {
        text.push_str(&format!(", and {} more changes", bottlenecks.len() - BOTTLENECKS));
    }
    (!text.is_empty()).then(|| format!("Held up by: {text}"))
}

fn totals(human: u8, summary: &CopySummary, dry_run: bool) -> [String; 2] {
    let travelled = summary.sent.saturating_add(summary.received);
    let rate = travelled as f64 / summary.seconds.as_f64().max(0.001);
    // Within one machine nothing travels, so nothing is saved.
    let speedup = if travelled == 0 { 1.0 } else { summary.total_size as f64 / travelled as f64 };
    let dry_run = if dry_run { " (DRY RUN)" } else { "" };
    let (sent, received) = (number(human, summary.sent), number(human, summary.received));
    let total = number(human, summary.total_size);
    // rsync never shortens this one.
    let speedup = decimal(human.min(1), speedup);
    [
        format!("sent {sent} bytes  received {received} bytes  {} bytes/sec", decimal(human, rate)),
        format!("total size is {total}  speedup is {speedup}{dry_run}"),
    ]
}

/// A line for whoever watched a copy that was to print nothing else: what was done, and where it came from.
pub fn done(summary: &CopySummary, dry_run: bool) -> String {
    let verb = if dry_run { "would be copied" } else { "copied" };
    let files = counted(summary.transferred, "file", "files");
    let mut text = format!("tow: {files}, {} {verb}", HumanBytes(summary.transferred_size));
    if !dry_run {
        text += &format!(" in {:.1} s", summary.seconds.as_f64());
    }
    let mut parts: Vec<_> = summary.sources.shown().into_iter().map(from_source).collect();
    if summary.kept > 0 {
        parts.push(format!("{} kept from before", HumanBytes(summary.kept)));
    }
    if !parts.is_empty() {
        text += &format!(" ({})", parts.join(", "));
    }
    let same = summary.seen.files.saturating_sub(summary.transferred + summary.failed + summary.vanished);
    let others = [(same, "unchanged"), (summary.deleted.total(), "deleted")];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {} {what}", HumanCount(count));
    }
    text
}

fn by_kind(human: u8, counts: &Counts) -> String {
    let kinds = [
        ("reg", counts.files),
        ("dir", counts.directories),
        ("link", counts.links),
        ("dev", counts.devices),
        ("special", counts.specials),
    ];
    let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
    let kinds: Vec<_> = kinds.map(|(name, count)| format!("{name}: {}", number(human, count))).collect();
    match kinds.is_empty() {
        true => "0".into(),
        false => format!("{} ({})", number(human, counts.total()), kinds.join(", ")),
    }
}

/// A number as rsync's `-h` levels write it.
fn number(human: u8, value: u64) -> String {
    match shortened(human, value as f64) {
        Some(text) => text,
        None if human == 0 => value.to_string(),
        None => in_groups(&value.to_string()),
    }
}

/// The same with two decimals.
fn decimal(human: u8, value: f64) -> String {
    if let Some(text) = shortened(human, value) {
        return text;
    }
    let text = format!("{value:.2}");
    match text.split_once('.') {
        Some((whole, fraction)) if human > 0 => format!("{}.{fraction}", in_groups(whole)),
        _ => text,
    }
}

fn shortened(human: u8, value: f64) -> Option<String> {
    let unit = match human {
        2 => 1000.0,
        3 => 1024.0,
        _ => return None,
    };
    let mut value = value / unit;
    let mut letters = "KMGTP".chars();
    let mut letter = letters.next().filter(|_| value >= 1.0)?;
    while let Some(next) = letters.next().filter(|_| value >= unit) {
        (value, letter) = (value / unit, next);
    }
    Some(format!("{value:.2}{letter}"))
}

fn in_groups(digits: &str) -> String {
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The exit status of a copy: `tow`'s for `cp`, rsync's for `sync`, save that a command line which
/// can't be understood is 2 everywhere in `tow` (rsync: 1).
pub fn exit_code(mode: Mode, result: &Result<CopySummary, ApiError>) -> u8 {
    match (mode, result) {
        (Mode::Cp, Ok(summary)) if summary.failed > 0 || summary.vanished > 0 => crate::output::PARTLY,
        (Mode::Cp, Ok(_)) => 0,
        (Mode::Cp, Err(error)) => match error.kind {
            ErrorKind::Usage => crate::output::USAGE,
            ErrorKind::Interrupted => crate::output::INTERRUPTED,
            _ => 1,
        },
        (Mode::Sync, Ok(summary)) if summary.failed > 0 => 23,
        (Mode::Sync, Ok(summary)) if summary.vanished > 0 => 24,
        (Mode::Sync, Ok(summary)) if summary.max_delete_reached => 25,
        (Mode::Sync, Ok(_)) => 0,
        (Mode::Sync, Err(error)) => match error.kind {
            ErrorKind::Usage => crate::output::USAGE,
            ErrorKind::Exists => 3,
            ErrorKind::Refused => 5,
            ErrorKind::NoSpace | ErrorKind::Busy | ErrorKind::Failed => 11,
            ErrorKind::Corrupt | ErrorKind::Unreachable => 12,
            ErrorKind::Interrupted => crate::output::SYNC_INTERRUPTED,
            ErrorKind::NotFound | ErrorKind::Changed => 23,
            ErrorKind::TimedOut => 30,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use towpath_api::{PEER, SourceBytes, THIS_MACHINE};

    use super::*;

    const NAMES: ShownChanges =
        ShownChanges { names: true, itemize: 0, stats: false, explain: false, progress: None, human: 1 };
    const ITEMS: ShownChanges =
        ShownChanges { names: false, itemize: 1, stats: false, explain: false, progress: None, human: 1 };

    fn item(changes: &[u8; 11], path: &str, target: Option<&str>) -> CopyEvent {
        CopyEvent::Item {
            changes: *changes,
            path: path.into(),
            target: target.map(Into::into),
            size: 0,
            modified: Default::default(),
        }
    }

    fn deleted(path: &str, is_dir: bool) -> CopyEvent {
        CopyEvent::Deleted { path: path.into(), is_dir }
    }

    /// Events for a tree of each kind, in the order of rsync's lines.
    fn scene(folder: &Path) -> Vec<CopyEvent> {
        let (source, destination) = (folder.join("source"), folder.join("destination"));
        for directory in [source.join("d"), destination.join("gone/below")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(source.join("a"), "a").unwrap();
        std::fs::hard_link(source.join("a"), source.join("z")).unwrap();
        std::os::unix::fs::symlink("a", source.join("link")).unwrap();
        std::fs::write(destination.join("old"), "").unwrap();
        let root = std::fs::File::open(&source).unwrap();
        root.set_modified(std::time::UNIX_EPOCH).unwrap();
        vec![
            deleted("old", false),
            deleted("gone/below", true),
            deleted("gone", true),
            item(b".d..t......", "./", None),
            item(b">f+++++++++", "a", None),
            item(b"cL+++++++++", "link", Some("a")),
            item(b"cd+++++++++", "d/", None),
            item(b"hf+++++++++", "z", Some("a")),
        ]
    }

    fn rsync(folder: &Path, flags: &str) -> Option<Vec<String>> {
        let mut command = Command::new("rsync");
        command.args([flags, "-aH", "--delete", "source/", "destination"]).current_dir(folder);
        let output = command.output().ok()?;
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        // Lines around the names, and the first of two hard links, are its own affair.
        lines.retain(|line| !line.is_empty() && !line.contains("file list") && !line.contains(" is "));
        lines.retain(|line| !line.starts_with("sent "));
        let lines = lines.into_iter().map(|line| match line.as_str() {
            ">f+++++++++ z" => ">f+++++++++ a".into(),
            "hf+++++++++ a => z" => "hf+++++++++ z => a".into(),
            "z" => "a".into(),
            "a => z" => "z => a".into(),
            _ => line,
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        Some(lines)
    }

    #[test]
    fn items_deletions_and_names_read_as_those_of_rsync() {
        let folder = tempfile::tempdir().unwrap();
        let events = scene(folder.path());
        for (flags, shown) in [("-ni", ITEMS), ("-nv", NAMES), ("-i", ITEMS)] {
            let Some(expected) = rsync(folder.path(), flags) else {
                eprintln!("rsync is not installed; not compared with it");
                return;
            };
            let mut ours: Vec<String> = events.iter().filter_map(|event| line(&shown, event)).collect();
            ours.sort();
            assert_eq!(ours, expected, "{flags:?}");
        }
    }

    #[test]
    fn nothing_is_said_unless_asked_for() {
        for event in [item(b">f+++++++++", "a", None), deleted("a", false)] {
            assert_eq!(line(&ShownChanges::default(), &event), None);
            assert!(
                line(&ShownChanges { progress: Some(true), ..ShownChanges::default() }, &event).is_some()
            );
        }
        assert_eq!(line(&NAMES, &item(b".f...p.....", "a", None)), None);
        assert_eq!(line(&ITEMS, &item(b".f         ", "a", None)).unwrap(), ".f          a");
        assert_eq!(line(&ITEMS, &item(b"hL+++++++++", "m", Some("l"))).unwrap(), "hL+++++++++ m => l");
    }

    #[test]
    fn names_that_would_paint_the_terminal_are_escaped() {
        let event = item(b"cL+++++++++", "\u{1b}[31m", Some("\u{202e}x\n"));
        assert_eq!(line(&NAMES, &event).unwrap(), r"\u{1b}[31m -> \u{202e}x\n");
        let failed = CopyEvent::Failed {
            path: b"a\x07".to_vec(),
            error: r"'\u{1b}' \x".to_owned() + "\u{1b}",
            hint: Some("look\n".into()),
            kind: FailureKind::Other,
        };
        assert_eq!(complaint(&failed).unwrap(), r"tow: a\u{7}: '\u{1b}' \x\u{1b}; look\n");
    }

    #[test]
    fn what_is_left_out_is_named_as_such() {
        let failed = CopyEvent::Failed {
            path: b"fifo".to_vec(),
            error: "a FIFO".into(),
            hint: Some("--specials copies it".into()),
            kind: FailureKind::Skipped,
        };
        assert_eq!(complaint(&failed).unwrap(), "tow: fifo: left out: a FIFO; --specials copies it");
        assert_eq!(complaint(&deleted("a", false)), None);
    }

    #[test]
    fn statistics_have_the_labels_of_rsync() {
        let summary = CopySummary {
            seen: Counts { files: 1200, directories: 30, links: 4, ..Counts::default() },
            deleted: Counts { files: 2, ..Counts::default() },
            transferred: 7,
            total_size: 1_234_567,
            transferred_size: 4000,
            literal: 3000,
            matched: 1000,
            sent: 3500,
            received: 500,
            seconds: Seconds::from_duration(std::time::Duration::from_secs(2)),
            ..CopySummary::default()
        };
        let shown = ShownChanges { stats: true, ..ShownChanges::default() };
        let lines = closing(&shown, &summary, true);
        assert_eq!(
            lines.join("\n"),
            "
Number of files: 1,234 (reg: 1,200, dir: 30, link: 4)
Number of created files: 0
Number of deleted files: 2 (reg: 2)
Number of regular files transferred: 7
Total file size: 1,234,567 bytes
Total transferred file size: 4,000 bytes
Literal data: 3,000 bytes
Matched data: 1,000 bytes
Total bytes sent: 3,500
Total bytes received: 500

sent 3,500 bytes  received 500 bytes  2,000.00 bytes/sec
total size is 1,234,567  speedup is 308.64 (DRY RUN)"
        );
        assert_eq!(closing(&NAMES, &summary, false).len(), 3);
        assert!(closing(&ITEMS, &summary, false).is_empty());
    }

    #[test]
    fn what_was_searched_is_told_in_words() {
        let line = |search| {
            let sources = SourceList(vec![SourceBytes { kind: "peer".into(), ..SourceBytes::default() }]);
            explanation(1, &Explained { sources: &sources, kept: 0, search })[1..].join("\n")
        };
        let at = |seconds| Seconds::from_duration(std::time::Duration::from_secs(seconds));
        let search = Searched {
            directories: 1,
            files: 2,
            hashed: 4000,
            looked_up: 1234,
            from_files: 1000,
            in_vain: 7,
            limited: true,
            bottlenecks: vec![(at(1), "network".into()), (at(2), "\x1b[31m".into())],
            ..Searched::default()
        };
        assert_eq!(
            line(Some(&search)),
            "Found in files that were searched: 1,000 bytes
Found in files that the index knew: 0 bytes
Searched for 0.00 s: 1 directory listed, 2 files read (4,000 bytes), 1,234 chunks looked up in the index
Not all was searched, as little was found; --search-effort=all searches all
Fetched though it was found as well: 7 bytes
Held up by: network (from 1.0 s on), \\u{1b}[31m (from 2.0 s on)"
        );
        let deltas = [("in_place", "it was in its place"), ("\x1b", "\\u{1b}")].map(|(why, shown)| {
            let delta = FileDelta {
                path: b"new\x1b".to_vec(),
                base: "/old".into(),
                why: why.into(),
                made: 300_000,
                came: 1234,
            };
            (delta, format!("  new\\u{{1b}}: 1,234 bytes came for 300,000, as a delta of /old: {shown}"))
        });
        let (deltas, shown): (Vec<_>, Vec<_>) = deltas.into_iter().unzip();
        let changed = Searched { changed: 2, by_change: 597_532, deltas, ..search.clone() };
        let told = line(Some(&changed));
        let head = ["Made of older versions: 597,532 bytes of 2 files".to_owned()];
        assert!(told.starts_with(&[&head[..], &shown].concat().join("\n")), "{told}");
        let many = Searched { bottlenecks: vec![(at(1), "disk".into()); 10], ..search.clone() };
        assert!(line(Some(&many)).ends_with("disk (from 1.0 s on), and 2 more changes"));
        assert!(line(None).starts_with("Nothing was searched: it was not wanted"));
        assert!(line(Some(&Searched::default())).starts_with("Nothing was searched: the network was"));
    }

    #[test]
    fn whoever_watches_is_told_what_was_done() {
        let seen = Counts { files: 14, ..Counts::default() };
        let deleted = Counts { files: 1, directories: 1, ..Counts::default() };
        let seconds = Seconds::from_duration(std::time::Duration::from_millis(1250));
        let mut summary = CopySummary {
            seen,
            transferred: 12,
            transferred_size: 3 << 20,
            seconds,
            ..CopySummary::default()
        };
        assert_eq!(done(&summary, false), "tow: 12 files, 3.00 MiB copied in 1.2 s; 2 unchanged");
        assert_eq!(done(&summary, true), "tow: 12 files, 3.00 MiB would be copied; 2 unchanged");
        let source = |kind: &str, path: Option<&str>, bytes| SourceBytes {
            kind: kind.into(),
            path: path.map(Into::into),
            bytes,
            ..SourceBytes::default()
        };
        summary.sources =
            SourceList(vec![source(PEER, Some("host"), 2 << 20), source(THIS_MACHINE, None, 1 << 20)]);
        (summary.transferred, summary.failed, summary.deleted) = (1, 13, deleted);
        assert_eq!(
            done(&summary, false),
            "tow: 1 file, 3.00 MiB copied in 1.2 s (2.00 MiB from host, 1.00 MiB from this machine); 2 deleted"
        );
        let many = CopySummary {
            seen: Counts { files: 15_001, ..Counts::default() },
            transferred: 8000,
            ..CopySummary::default()
        };
        assert_eq!(done(&many, true), "tow: 8,000 files, 0 B would be copied; 7,001 unchanged");
    }

    #[test]
    fn a_copy_within_this_machine_saves_nothing() {
        let summary = CopySummary { literal: 2000, total_size: 5000, ..CopySummary::default() };
        assert_eq!(totals(1, &summary, false)[1], "total size is 5,000  speedup is 1.00");
    }

    #[test]
    fn numbers_are_written_as_asked_for() {
        for (human, value, text) in [
            (0, 1_234_567, "1234567"),
            (1, 1_234_567, "1,234,567"),
            (1, 123, "123"),
            (2, 999, "999"),
            (2, 1_234_567, "1.23M"),
            (3, 1024, "1.00K"),
            (3, 1_234_567, "1.18M"),
        ] {
            assert_eq!(number(human, value), text);
        }
    }

    #[test]
    fn the_exit_status_tells_what_happened() {
        let with = |failed, vanished, max_delete_reached| {
            Ok(CopySummary { failed, vanished, max_delete_reached, ..CopySummary::default() })
        };
        let error = |kind| Err(ApiError::new(kind, ""));
        for (result, cp, sync) in [
            (with(0, 0, false), 0, 0),
            (with(1, 1, true), 3, 23),
            (with(0, 1, true), 3, 24),
            (with(0, 0, true), 0, 25),
            (error(ErrorKind::Usage), 2, 2),
            (error(ErrorKind::NotFound), 1, 23),
            (error(ErrorKind::Exists), 1, 3),
            (error(ErrorKind::Refused), 1, 5),
            (error(ErrorKind::Unreachable), 1, 12),
            (error(ErrorKind::TimedOut), 1, 30),
            (error(ErrorKind::Corrupt), 1, 12),
            (error(ErrorKind::Changed), 1, 23),
            (error(ErrorKind::NoSpace), 1, 11),
            (error(ErrorKind::Interrupted), 130, 20),
            (error(ErrorKind::Failed), 1, 11),
        ] {
            assert_eq!(exit_code(Mode::Cp, &result), cp, "{result:?}");
            assert_eq!(exit_code(Mode::Sync, &result), sync, "{result:?}");
        }
    }
}
