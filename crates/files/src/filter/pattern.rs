//! A path against the pattern of one rule: which part of the path the pattern is held against.

use super::rule::MatchRule;
use super::wild::Wild;

/// The entry that is asked about, as text in all the forms that patterns want: a slash, the
/// absolute path of the tree and a slash (if known), the path in the tree, and a slash.
#[derive(Debug, Default)]
pub(super) struct PatternSubject {
    text: Vec<u8>,
    /// Begin of the path in the tree.
    path: usize,
    /// Begin of its last name.
    name: usize,
    is_dir: bool,
}

impl PatternSubject {
    /// Asks about `path`, which is not empty, in the tree at `absolute` (without its first slash).
    pub(super) fn set(&mut self, absolute: &[u8], path: &[u8], is_dir: bool) {
        self.is_dir = is_dir;
        self.text.clear();
        self.text.push(b'/');
        if !absolute.is_empty() {
            self.text.extend_from_slice(absolute);
            self.text.push(b'/');
        }
        self.path = self.text.len();
        self.text.extend_from_slice(path);
        self.name = self.path + path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        self.text.push(b'/');
    }

    /// From `start` to the end of the path.
    fn until_end(&self, start: usize) -> &[u8] {
        self.text.get(start..self.text.len() - 1).unwrap_or(b"")
    }

    /// From `start` to the slash behind the path.
    fn until_slash(&self, start: usize) -> &[u8] {
        self.text.get(start..).unwrap_or(b"")
    }

    /// True if the tree's absolute path is known.
    const fn has_absolute(&self) -> bool {
        self.path > 1
    }
}

/// Meaning of a leading slash in a pattern, in bytes to leave out at the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    /// A directory of the tree: the length of its path and slash, 0 at the top.
    Tree(usize),
    /// A directory above the tree: that of its absolute path and slash, 0 at the file system's root.
    Above(usize),
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    region: PatternRegion,
    shape: PatternShape,
    /// Ends with `***`: a directory is seen with a slash behind it.
    takes_slash: bool,
}

#[derive(Debug, Clone, Copy)]
enum PatternRegion {
    /// The last name.
    Name,
    /// All from here on.
    From(Anchor),
    /// As [`PatternRegion::From`], with the slash before it if `absolute` is not in force.
    Led { absolute: bool },
    /// As [`PatternRegion::From`], with the slash before it.
    AfterSlash(Anchor),
    /// So many names at the end.
    Tail(Anchor, usize),
}

#[derive(Debug)]
enum PatternShape {
    Literal(Vec<u8>),
    Wild(Wild),
    /// Malformed: matches nothing.
    Nothing,
}

impl Pattern {
    /// Compiles the pattern of a rule; `anchor` is where a leading slash stands for.
    pub(super) fn new(rule: &MatchRule, anchor: Anchor) -> Self {
        let whole = rule.pattern.as_slice();
        let is_wild = whole.iter().any(|b| matches!(b, b'*' | b'?' | b'['));
        let crosses = whole.windows(2).position(|pair| pair == b"**");
        let slashes = whole.iter().filter(|b| **b == b'/').count();
        let anchored = whole.strip_prefix(b"/");
        let base = if rule.absolute { Anchor::Above(0) } else { Anchor::Tree(0) };
        let region = match (anchored, crosses) {
            (_, None) if slashes == 0 => PatternRegion::Name,
            (Some(_), _) if rule.absolute => PatternRegion::From(base),
            (Some(_), _) => PatternRegion::From(anchor),
            (None, Some(0)) => PatternRegion::Led { absolute: rule.absolute },
            (None, Some(_)) => PatternRegion::AfterSlash(base),
            (None, None) => PatternRegion::Tail(base, slashes + 1),
        };
        let pattern = anchored.unwrap_or(whole);
        let shape = match region {
            _ if !is_wild => PatternShape::Literal(pattern.to_vec()),
            PatternRegion::AfterSlash(_) => {
                Wild::after_any_slash(pattern).map_or(PatternShape::Nothing, PatternShape::Wild)
            }
            _ => Wild::new(pattern).map_or(PatternShape::Nothing, PatternShape::Wild),
        };
        Self { region, shape, takes_slash: whole.ends_with(b"***") }
    }

    /// True if it matches.
    pub(super) fn matches(&self, subject: &PatternSubject) -> bool {
        let Some(text) = self.part_of(subject) else { return false };
        match &self.shape {
            PatternShape::Literal(literal) => literal == text,
            PatternShape::Wild(wild) => wild.matches(text),
            PatternShape::Nothing => false,
        }
    }

    /// The part of the path that the pattern is held against.
    fn part_of<'a>(&self, subject: &'a PatternSubject) -> Option<&'a [u8]> {
        let from = |start| match self.takes_slash && subject.is_dir {
            true => subject.until_slash(start),
            false => subject.until_end(start),
        };
        Some(match self.region {
            PatternRegion::Name => subject.until_end(subject.name),
            PatternRegion::From(anchor) => from(start_of(anchor, subject)),
            PatternRegion::Led { absolute: true } if subject.has_absolute() => from(1),
            PatternRegion::Led { .. } => from(subject.path - 1),
            PatternRegion::AfterSlash(anchor) => from(start_of(anchor, subject) - 1),
            PatternRegion::Tail(anchor, names) => {
                last_names(subject.until_end(start_of(anchor, subject)), names)?
            }
        })
    }
}

const fn start_of(anchor: Anchor, subject: &PatternSubject) -> usize {
    match anchor {
        Anchor::Tree(skipped) => subject.path + skipped,
        Anchor::Above(skipped) => 1 + skipped,
    }
}

/// The last names of a path; `None` if it has fewer.
fn last_names(path: &[u8], names: usize) -> Option<&[u8]> {
    let mut slashes = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    match slashes.nth(names - 1) {
        Some(slash) => Some(&path[slash + 1..]),
        None => (path.split(|b| *b == b'/').count() == names).then_some(path),
    }
}
