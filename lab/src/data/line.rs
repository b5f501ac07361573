//! A line that names data: words, read into what they ask for.

use towpath_simnet::units;

use super::DataError;

/// Request of a whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Data to transfer.
    pub spec: Spec,
    /// Place of the older version, if there is one.
    pub place: LinePlace,
    /// Files at the receiver that have nothing to do with it.
    pub useless: u64,
}

/// Request of a line, wherever its older version lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// A random file of so many bytes.
    Random(u64),
    /// One of words.
    Text(u64),
    /// Two of them, alike.
    Similar {
        /// Bytes of the older one.
        bytes: u64,
        /// Likeness in thousandths, with few long edits; many short ones if it is absent.
        share: Option<u32>,
    },
    /// A tree of odd things.
    OddTree,
    /// A tree of so many files.
    Files {
        /// Kind of file sizes.
        kind: Files,
        /// Number of files.
        count: u64,
        /// Older tree that the receiver has of it.
        older: OlderTree,
    },
    /// A package, the older version that the receiver has, and whether they are unpacked.
    Package {
        /// Its name.
        name: String,
        /// Version to transfer.
        version: String,
        /// Version that the receiver has.
        older: Option<String>,
        /// As a tree.
        is_unpacked: bool,
    },
}

/// Sizes of a tree's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Up to 16 KiB, a hundred in a directory.
    Small,
    /// Up to 4 KiB, a thousand in a directory.
    Tiny,
    /// Up to 64 KiB, a hundred in a directory; every other one is of words, and zstd makes it half as large.
    Mixed,
    /// Up to 220 KiB, a hundred in a directory: each one piece, whatever its size.
    Medium,
}

impl Files {
    /// As a line says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small-files",
            Self::Tiny => "tiny-files",
            Self::Mixed => "mixed-files",
            Self::Medium => "medium-files",
        }
    }
}

/// Older tree that the receiver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OlderTree {
    /// Nothing.
    Nothing,
    /// The very same, times included.
    Same,
    /// All but so many of its files.
    Changed(u64),
}

/// Place of the older version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePlace {
    /// The place where the new one shall be.
    Destination,
    /// Under the same name in a directory beside the destination's.
    Sibling,
    /// The place where the new one shall be, and at the sender too.
    Both,
    /// Under another name in the destination's directory.
    Renamed,
    /// Under the same name in a directory that has nothing to do with the destination.
    Elsewhere,
    /// There, under another name.
    Lost,
}

impl LinePlace {
    /// The one of this name; the destination has none.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "both" => Some(Self::Both),
            "sibling" => Some(Self::Sibling),
            "renamed" => Some(Self::Renamed),
            "elsewhere" => Some(Self::Elsewhere),
            "lost" => Some(Self::Lost),
            _ => None,
        }
    }
}

impl Line {
    /// Reads it.
    pub fn parse(line: &str) -> Result<Self, DataError> {
        let wrong = || DataError::Line(line.to_owned());
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut useless = 0;
        if let [.., "useless", count] = words[..] {
            useless = count.parse().map_err(|_| wrong())?;
            words.truncate(words.len() - 2);
        }
        let place = match words.last().and_then(|word| word.strip_prefix("at=")) {
            None => LinePlace::Destination,
            Some(place) => {
                words.pop();
                LinePlace::read(place).ok_or_else(wrong)?
            }
        };
        let spec = read(&words).ok_or_else(wrong)?;
        if place != LinePlace::Destination && !spec.has_older() {
            return Err(wrong());
        }
        Ok(Self { spec, place, useless })
    }
}

impl Spec {
    fn has_older(&self) -> bool {
        match self {
            Self::Random(_) | Self::Text(_) | Self::OddTree => false,
            Self::Similar { .. } => true,
            Self::Files { older, .. } => *older != OlderTree::Nothing,
            Self::Package { older, .. } => older.is_some(),
        }
    }
}

fn read(words: &[&str]) -> Option<Spec> {
    let package = |name: &str, older: Option<&str>, version: &str, is_unpacked| Spec::Package {
        name: name.into(),
        version: version.into(),
        older: older.map(Into::into),
        is_unpacked,
    };
    Some(match *words {
        ["random", bytes] => Spec::Random(size(bytes)?),
        ["text", bytes] => Spec::Text(size(bytes)?),
        ["similar", bytes] => Spec::Similar { bytes: size(bytes)?, share: None },
        ["similar", bytes, share] => Spec::Similar { bytes: size(bytes)?, share: Some(thousandths(share)?) },
        ["odd-tree"] => Spec::OddTree,
        ["small-files", count, ref rest @ ..] => tree(Files::Small, count, rest)?,
        ["tiny-files", count, ref rest @ ..] => tree(Files::Tiny, count, rest)?,
        ["mixed-files", count, ref rest @ ..] => tree(Files::Mixed, count, rest)?,
        ["medium-files", count, ref rest @ ..] => tree(Files::Medium, count, rest)?,
        [name, version] => package(name, None, version, false),
        [name, version, "unpacked"] => package(name, None, version, true),
        [name, older, version] => package(name, Some(older), version, false),
        [name, older, version, "unpacked"] => package(name, Some(older), version, true),
        _ => return None,
    })
}

fn tree(kind: Files, count: &str, rest: &[&str]) -> Option<Spec> {
    let count = count.parse().ok()?;
    let older = match rest {
        [] => OlderTree::Nothing,
        ["again"] => OlderTree::Same,
        ["changed", changed] => {
            OlderTree::Changed(changed.parse().ok().filter(|it| (1..=count).contains(it))?)
        }
        _ => return None,
    };
    Some(Spec::Files { kind, count, older })
}

/// Bytes as everywhere in the lab, where `m` is 2^20; or in millions, as in `50MB`.
fn size(text: &str) -> Option<u64> {
    match text.strip_suffix("MB") {
        Some(millions) => millions.parse::<u64>().ok()?.checked_mul(1_000_000),
        None => units::bytes(text).ok(),
    }
}

/// A share that leaves something to edit, and something to keep.
fn thousandths(text: &str) -> Option<u32> {
    let share = (units::share(text).ok()? * 1000.0).round() as u32;
    (100..1000).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Line {
        Line::parse(line).unwrap()
    }

    #[test]
    fn lines_name_data() {
        assert_eq!(parse("random 4k").spec, Spec::Random(4096));
        assert_eq!(parse("text 2MB").spec, Spec::Text(2_000_000));
        assert_eq!(parse("odd-tree").spec, Spec::OddTree);
        assert_eq!(parse("similar 4k").spec, Spec::Similar { bytes: 4096, share: None });
        assert_eq!(parse("similar 50MB 99%").spec, Spec::Similar { bytes: 50_000_000, share: Some(990) });
        let (kind, count) = (Files::Small, 200);
        let tree = |older| Spec::Files { kind, count, older };
        assert_eq!(parse("small-files 200").spec, tree(OlderTree::Nothing));
        assert_eq!(parse("small-files 200 again").spec, tree(OlderTree::Same));
        assert_eq!(parse("small-files 200 changed 3").spec, tree(OlderTree::Changed(3)));
        let pair = Spec::Package {
            name: "typescript".into(),
            version: "6.0.3".into(),
            older: Some("6.0.2".into()),
            is_unpacked: true,
        };
        assert_eq!(parse("typescript 6.0.2 6.0.3 unpacked").spec, pair);
    }

    #[test]
    fn lines_tell_what_else_the_receiver_has() {
        let line = parse("similar 50m 99% at=renamed useless 1000");
        assert_eq!((line.place, line.useless), (LinePlace::Renamed, 1000));
        assert_eq!(parse("typescript 6.0.2 6.0.3 at=elsewhere").place, LinePlace::Elsewhere);
        assert_eq!(parse("similar 1m at=lost").place, LinePlace::Lost);
        assert_eq!(parse("typescript 6.0.2 6.0.3 unpacked at=both").place, LinePlace::Both);
        assert_eq!(parse("random 1m useless 5").useless, 5);
    }

    #[test]
    fn what_is_no_line_is_told() {
        for line in [
            "",
            "random",
            "random much",
            "a b c d",
            "small-files few",
            "small-files 10 changed 11",
            "similar 1m 100%",
            "similar 1m at=home",
            "random 1m at=sibling",
            "random 1m useless many",
        ] {
            let told = Line::parse(line).unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{line}` names no data")), "{told}");
        }
    }
}
