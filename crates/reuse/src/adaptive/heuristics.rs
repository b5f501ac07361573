//! Probability that a local file holds what a file of the transfer needs, from metadata alone (§6.2.2).
//!
//! A list of small functions, each with its reason: one more is one more entry of [`HEURISTICS`]. Only the
//! order that comes out matters, not the values. The first five are the paper's, with its numbers,
//! and are multiplied. They ask for an equal name, so what was renamed comes late; ours, after them,
//! give a lower bound where the evidence speaks for itself.

use std::time::Duration;

use towpath_content::tree::Time;

use super::paths::{SplitDirectory, are_alike};

/// A file, of the transfer or of the local disk: all that is known without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    /// Its directory; of the transfer, the one that it will lie in.
    pub directory: SplitDirectory,
    /// Its name there, raw bytes.
    pub name: Box<[u8]>,
    /// Its bytes.
    pub size: u64,
    /// Its modification time, if known.
    pub modified: Option<Time>,
}

/// A file of the transfer and one of the disk, as heuristics compare them.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Of the transfer.
    pub source: &'a File,
    /// Of the disk.
    pub candidate: &'a File,
    /// Nearness of their directories: their [`commonality`](super::paths::commonality) or what else is known.
    pub nearness: f64,
}

/// Opinion of one heuristic on a pair of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Opinion {
    /// One factor of the likelihood.
    Times(f64),
    /// Lower bound, whatever the factors say (0 says nothing).
    AtLeast(f64),
}

/// One reason to think that a file is useful.
pub struct Heuristic {
    /// For `--explain`.
    pub name: &'static str,
    /// Reason why it tells anything.
    pub reason: &'static str,
    /// Its opinion on a file of the transfer and one of the disk.
    pub opinion: fn(pair: &Pair<'_>) -> Opinion,
}

/// The heuristics in use.
pub static HEURISTICS: &[Heuristic] = &[
    Heuristic {
        name: "max chunks",
        reason: "a smaller file can't hold more of the source than its own size",
        opinion: max_chunks,
    },
    Heuristic {
        name: "file name",
        reason: "versions of a file keep its name or its kind",
        opinion: file_name,
    },
    Heuristic { name: "size", reason: "versions of a file differ little in size", opinion: size },
    Heuristic {
        name: "modification time",
        reason: "copies often keep it; a different one says little",
        opinion: modification_time,
    },
    Heuristic {
        name: "path",
        reason: "the number of files grows exponentially with the distance in the tree",
        opinion: path,
    },
    Heuristic {
        name: "telling size",
        reason: "large files whose size is no round number are seldom equal in size by chance",
        opinion: telling_size,
    },
    Heuristic {
        name: "moved",
        reason: "a rename keeps size and time, and times agree to the nanosecond only if copied",
        opinion: moved,
    },
];

/// Probability that a chunk of the first is found in the second, between 0 and 1.
pub fn probability(pair: &Pair<'_>) -> f64 {
    let (mut product, mut floor) = (1.0_f64, 0.0_f64);
    for heuristic in HEURISTICS {
        match (heuristic.opinion)(pair) {
            Opinion::Times(factor) => product *= factor,
            Opinion::AtLeast(least) => floor = floor.max(least),
        }
    }
    product.max(floor)
}

fn max_chunks(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    match source.size {
        0 => Opinion::Times(1.0),
        size => Opinion::Times(candidate.size.min(size) as f64 / size as f64),
    }
}

/// 1 for the same name, 0.7 if they begin or end alike, 0.5 for the same extension, else 0.1.
fn file_name(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    if source.name == candidate.name {
        return Opinion::Times(1.0);
    }
    let (stem, extension) = split(&source.name);
    let (other_stem, other_extension) = split(&candidate.name);
    let same_kind = extension.is_some() && extension == other_extension;
    Opinion::Times(match () {
        () if are_alike(stem, other_stem) => 0.7,
        () if same_kind => 0.5,
        () => 0.1,
    })
}

/// Name and extension; what begins with its only dot has none.
fn split(name: &[u8]) -> (&[u8], Option<&[u8]>) {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => (&name[..dot], Some(&name[dot + 1..])),
        _ => (name, None),
    }
}

/// 1 for the same size, 0.9 to 0.5 up to 10 % off, else 0.1.
fn size(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    let apart = source.size.abs_diff(candidate.size) as f64 / source.size.max(1) as f64;
    Opinion::Times(match apart {
        0.0 => 1.0,
        apart if apart <= 0.1 => 0.9 - 4.0 * apart,
        _ => 0.1,
    })
}

/// 1 for the same time, 1 to 0.9 within ten seconds, else 0.7.
fn modification_time(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    const NEAR: f64 = 10.0;
    let apart = match (source.modified, candidate.modified) {
        (Some(one), Some(other)) => apart(one, other).as_secs_f64(),
        _ => f64::INFINITY,
    };
    Opinion::Times(if apart <= NEAR { 1.0 - 0.1 * apart / NEAR } else { 0.7 })
}

fn apart(one: Time, other: Time) -> Duration {
    let since = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let nanos = since(one).abs_diff(since(other));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn path(pair: &Pair<'_>) -> Opinion {
    Opinion::Times(pair.nearness)
}

/// Grows with the size, as files near a given size become rarer: 0.45 at 1 MiB, 0.83 at 12 MiB.
/// Multiples of 512 come from tools that pad, and are common.
fn telling_size(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    const RARE: f64 = 1_048_576.0;
    if source.size != candidate.size || source.size.is_multiple_of(512) {
        return Opinion::AtLeast(0.0);
    }
    let size = source.size as f64;
    Opinion::AtLeast(0.9 * size / (size + RARE))
}

/// Whole seconds are no evidence: unpacked archives and reproducible builds have them in thousands.
fn moved(&Pair { source, candidate, .. }: &Pair<'_>) -> Opinion {
    let time = source.modified.filter(|time| time.nanos != 0);
    let is_moved = time.is_some() && source.modified == candidate.modified && source.size == candidate.size;
    Opinion::AtLeast(if is_moved && source.size > 0 { 0.95 } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::adaptive::paths::commonality;

    fn file(path: &str, size: u64, modified: (i64, u32)) -> File {
        let path = Path::new(path);
        File {
            directory: SplitDirectory::new(path.parent().unwrap()),
            name: path.file_name().unwrap().as_encoded_bytes().into(),
            size,
            modified: Some(Time { seconds: modified.0, nanos: modified.1 }),
        }
    }

    fn pair<'a>(source: &'a File, candidate: &'a File) -> Pair<'a> {
        Pair { source, candidate, nearness: commonality(&source.directory, &candidate.directory) }
    }

    fn probability(source: &File, candidate: &File) -> f64 {
        super::probability(&pair(source, candidate))
    }

    fn opinion(opinion: fn(&Pair<'_>) -> Opinion, one: &File, other: &File) -> f64 {
        match opinion(&pair(one, other)) {
            Opinion::Times(value) | Opinion::AtLeast(value) => value,
        }
    }

    #[test]
    fn max_chunks_is_the_share_that_fits() {
        let source = file("/a", 1000, (0, 0));
        for (size, expected) in [(0, 0.0), (250, 0.25), (1000, 1.0), (9000, 1.0)] {
            assert_eq!(opinion(max_chunks, &source, &file("/a", size, (0, 0))), expected, "{size}");
        }
        assert_eq!(opinion(max_chunks, &file("/a", 0, (0, 0)), &source), 1.0);
    }

    #[test]
    fn a_table_of_names() {
        for (one, other, expected) in [
            ("/a.txt", "/a.txt", 1.0),
            ("/a.txt", "/b.txt", 0.5),
            ("/a.txt", "/core", 0.1),
            ("/tow-1.2.tar", "/tow-1.3.tar", 0.7),
            ("/report.doc", "/old-report.doc", 0.7),
            ("/report.doc", "/report.bak", 0.7),
            ("/.profile", "/.bashrc", 0.1),
            ("/a.out", "/diff", 0.1),
        ] {
            assert_eq!(
                opinion(file_name, &file(one, 1, (0, 0)), &file(other, 1, (0, 0))),
                expected,
                "{other}"
            );
        }
    }

    #[test]
    fn a_table_of_sizes_and_times() {
        let source = file("/a", 1000, (100, 0));
        for (bytes, expected) in [(1000, 1.0), (1050, 0.7), (900, 0.5), (1101, 0.1), (10, 0.1)] {
            let found = opinion(size, &source, &file("/a", bytes, (0, 0)));
            assert!((found - expected).abs() < 1e-9, "{bytes}: {found}");
        }
        for (seconds, expected) in [(100, 1.0), (105, 0.95), (90, 0.9), (111, 0.7), (-100, 0.7)] {
            let found = opinion(modification_time, &source, &file("/a", 1, (seconds, 0)));
            assert!((found - expected).abs() < 1e-9, "{seconds}: {found}");
        }
        let unknown = File { modified: None, ..source.clone() };
        assert_eq!(opinion(modification_time, &unknown, &unknown), 0.7);
    }

    #[test]
    fn a_renamed_file_is_known_by_size_and_time() {
        let source = file("/s/y/n/c/test/a.out", 12_345_677, (5, 0));
        let renamed = file("/elsewhere/diff", 12_345_677, (9, 0));
        assert!(probability(&source, &renamed) > 0.8);
        assert!(probability(&source, &file("/elsewhere/diff", 12_345_678, (9, 0))) < 0.1);
        assert!(probability(&file("/a", 65536, (1, 0)), &file("/q/b", 65536, (2, 0))) < 0.1, "a round size");
        assert!(probability(&file("/x/a", 900, (1, 7)), &file("/q/b", 900, (1, 7))) >= 0.95);
        assert!(probability(&file("/x/a", 900, (1, 0)), &file("/q/b", 900, (1, 0))) < 0.1, "a whole second");
    }

    #[test]
    fn the_paper_s_probabilities() {
        let source = |path| file(path, 65536, (1000, 0));
        let copy = source("/d/new/a.txt");
        assert_eq!(probability(&source("/d/new/a.txt"), &copy), 1.0);
        let other = File { modified: Some(Time { seconds: 0, nanos: 0 }), ..source("/d/new/b.txt") };
        assert!((probability(&other, &copy) - 0.35).abs() < 1e-9);
        let core = file("/d/new/core", 1 << 20, (500, 0));
        assert!((probability(&other, &core) - 0.007).abs() < 0.0001);
    }
}
