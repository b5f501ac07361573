//! The part of a described tree that is wanted: some of its paths, less what filter rules leave out, and where each
//! entry of it goes. Pure: it is told the events of a walk through the tree, in their order.
//!
//! Names below a wanted path keep their place. The path itself goes under a name of its own, right into the destination:
//!
//! | wanted | entry of the tree | at the destination |
//! |---|---|---|
//! | all | the root, `a`, `a/b` | the destination itself, `a`, `a/b` |
//! | `a/b` as `b` | `a`, `a/b`, `a/b/c`, `x` | nowhere, `b`, `b/c`, nowhere |
//! | `a/b` as `new` | `a/b`, `a/b/c` | `new`, `new/c` |
//!
//! A filter's pattern that begins with a slash is matched against the path at the destination, before a wanted path is
//! renamed: as for `rsync host:tree/a/b .`.

use thiserror::Error;
use towpath_content::tree::{Entry, Event, Kind};

use crate::error::FileError;
use crate::filter::{Filter, FilterSide, RuleList};
use crate::names::display_name;
use crate::path::RelPath;

/// Reason why a part of a tree can't be wanted so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectionFault {
    /// Two paths would go to one place.
    #[error("two of the paths would be {}", display_name(.0))]
    SameName(Vec<u8>),
    /// A path lies in another one that is wanted.
    #[error("{inner} lies in {outer}, which is asked for too")]
    Nested {
        /// The one that lies in the other.
        inner: RelPath,
        /// The other.
        outer: RelPath,
    },
    /// The path is that of the tree itself.
    #[error("the tree itself is no path in it")]
    Root,
    /// Rules that are read from files in the tree, which are not at hand.
    #[error("rules of files in the tree (dir-merge) hold only where the tree is read")]
    DirMerges,
}

/// Paths in the order of a tree's walk, none twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathList(Vec<RelPath>);

impl PathList {
    /// Of paths in any order.
    pub fn new(mut paths: Vec<RelPath>) -> Self {
        paths.sort_by(|one, other| one.names().cmp(other.names()));
        paths.dedup();
        Self(paths)
    }

    /// The place of a path in the list.
    pub fn find(&self, names: &[&[u8]]) -> Option<usize> {
        self.0.binary_search_by(|one| one.names().cmp(names.iter().copied())).ok()
    }

    /// True for a directory in which a listed path lies, at whatever depth, and for a listed path.
    pub fn is_on_the_way(&self, names: &[&[u8]]) -> bool {
        let at = self.0.partition_point(|one| one.names().lt(names.iter().copied()));
        self.0.get(at).is_some_and(|next| next.names().take(names.len()).eq(names.iter().copied()))
    }

    /// True for what lies in a listed directory, at whatever depth.
    pub fn is_above(&self, names: &[&[u8]]) -> bool {
        (0..names.len()).any(|depth| self.find(&names[..depth]).is_some())
    }

    /// The paths.
    pub fn paths(&self) -> &[RelPath] {
        &self.0
    }
}

/// A path of the tree that is wanted, and its name at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPath {
    /// Below the tree's root.
    pub path: RelPath,
    /// One plain name.
    pub name: Vec<u8>,
}

/// An entry that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Its place below the destination; the destination itself for the root of a whole tree.
    pub path: RelPath,
    /// It is one of the paths that were asked for by name.
    pub is_named: bool,
}

/// State of a directory that the walk is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenDir {
    /// Not wanted itself; something in it may be.
    OnTheWay,
    /// Wanted, with what is in it.
    Wanted,
    /// Nothing in it is wanted.
    Skipped,
}

/// Choice of what is wanted of a tree. It may be told of several walks, one after the other.
#[derive(Debug)]
pub struct Selection {
    /// Empty: all of the tree.
    list: PathList,
    /// Names at the destination, in the order of the list.
    names: Vec<Vec<u8>>,
    /// True for each that the walk came by.
    found: Vec<bool>,
    filter: Filter,
    open: Vec<OpenDir>,
    /// The innermost directory in the tree that is wanted, or on the way to what is.
    at: RelPath,
    /// The innermost wanted directory at the destination, and as the filter knows it.
    to: RelPath,
    shown: RelPath,
}

impl Selection {
    /// All of the tree if `wanted` is empty, less what `rules` leave out.
    pub fn new(mut wanted: Vec<WantedPath>, rules: RuleList) -> Result<Self, SelectionFault> {
        if rules.has_dir_merges() {
            return Err(SelectionFault::DirMerges);
        }
        wanted.sort_by(|one, other| one.path.names().cmp(other.path.names()));
        wanted.dedup();
        check(&wanted)?;
        let (paths, names): (Vec<_>, Vec<_>) =
            wanted.into_iter().map(|WantedPath { path, name }| (path, name)).unzip();
        Ok(Self {
            list: PathList::new(paths),
            found: vec![false; names.len()],
            names,
            filter: Filter::new(rules, FilterSide::Sender, false),
            open: Vec::new(),
            at: RelPath::root(),
            to: RelPath::root(),
            shown: RelPath::root(),
        })
    }

    /// Takes the next event; returns where its entry goes, of a `Leave` the directory's, if that is wanted.
    pub fn next(&mut self, event: &Event) -> Result<Option<Selected>, FileError> {
        match event {
            Event::Leave => Ok(self.leave()),
            Event::Leaf(entry) => Ok(self.look(entry)?.map(|(_, selected)| selected)),
            Event::Enter(entry) => self.enter(entry),
        }
    }

    /// The paths that are wanted, and their names at the destination.
    pub fn wanted(&self) -> impl Iterator<Item = (&RelPath, &[u8])> {
        self.list.paths().iter().zip(self.names.iter().map(Vec::as_slice))
    }

    /// The directory of the tree that the next entry lies in, if that is wanted.
    pub const fn at(&self) -> &RelPath {
        &self.at
    }

    /// Directories that the walk is in.
    pub const fn depth(&self) -> usize {
        self.open.len()
    }

    /// Wanted paths that no walk has come by.
    pub fn missing(&self) -> impl Iterator<Item = &RelPath> {
        self.list.paths().iter().zip(&self.found).filter(|(_, found)| !**found).map(|(path, _)| path)
    }

    fn enter(&mut self, entry: &Entry) -> Result<Option<Selected>, FileError> {
        let looked = self.look(entry)?;
        if let Some((shown, selected)) = looked {
            self.go_to(entry)?;
            (self.shown, self.to) = (shown, selected.path.clone());
            self.open.push(OpenDir::Wanted);
            return Ok(Some(selected));
        }
        let is_on_the_way = self.is_on_the_way(entry)?;
        if is_on_the_way {
            self.go_to(entry)?;
        }
        self.open.push(if is_on_the_way { OpenDir::OnTheWay } else { OpenDir::Skipped });
        Ok(None)
    }

    /// True if something in a directory may be wanted that is not wanted itself.
    fn is_on_the_way(&self, entry: &Entry) -> Result<bool, FileError> {
        Ok(match self.open.last() {
            None => true,
            Some(OpenDir::OnTheWay) => {
                let path = self.at.join(&entry.name)?;
                let names: Vec<_> = path.names().collect();
                self.list.is_on_the_way(&names) && self.list.find(&names).is_none()
            }
            Some(OpenDir::Wanted | OpenDir::Skipped) => false,
        })
    }

    /// The root has no name.
    fn go_to(&mut self, entry: &Entry) -> Result<(), FileError> {
        if self.open.is_empty() { Ok(()) } else { self.at.push(&entry.name) }
    }

    /// Destination of an entry if it is wanted, and the filter's name for it.
    fn look(&mut self, entry: &Entry) -> Result<Option<(RelPath, Selected)>, FileError> {
        let is_dir = entry.kind == Kind::Directory;
        let (shown, selected) = match self.open.last() {
            None if self.names.is_empty() => {
                let selected = Selected { path: RelPath::root(), is_named: false };
                return Ok(Some((RelPath::root(), selected)));
            }
            None | Some(OpenDir::Skipped) => return Ok(None),
            Some(OpenDir::Wanted) => {
                let selected = Selected { path: self.to.join(&entry.name)?, is_named: false };
                (self.shown.join(&entry.name)?, selected)
            }
            Some(OpenDir::OnTheWay) => {
                let path = self.at.join(&entry.name)?;
                let Some(number) = self.list.find(&path.names().collect::<Vec<_>>()) else { return Ok(None) };
                self.found[number] = true;
                let selected = Selected { path: RelPath::new([&self.names[number]])?, is_named: true };
                (RelPath::new([&entry.name])?, selected)
            }
        };
        Ok(self.filter.shows(&shown, is_dir).then_some((shown, selected)))
    }

    fn leave(&mut self) -> Option<Selected> {
        match self.open.pop()? {
            OpenDir::Skipped => None,
            OpenDir::OnTheWay => {
                self.at.pop();
                None
            }
            OpenDir::Wanted => {
                let is_named = !self.names.is_empty() && self.to.depth() == 1;
                let selected = Selected { path: self.to.clone(), is_named };
                self.at.pop();
                self.to.pop();
                self.shown.pop();
                Some(selected)
            }
        }
    }
}

/// Fails unless it is clear where each path goes; they are sorted.
fn check(wanted: &[WantedPath]) -> Result<(), SelectionFault> {
    if wanted.iter().any(|wanted| wanted.path.is_root()) {
        return Err(SelectionFault::Root);
    }
    if let Some([outer, inner]) = wanted.array_windows().find(|[one, next]| next.path.starts_with(&one.path))
    {
        return Err(SelectionFault::Nested { inner: inner.path.clone(), outer: outer.path.clone() });
    }
    let mut names: Vec<_> = wanted.iter().map(|wanted| &wanted.name).collect();
    names.sort();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([same, _]) => Err(SelectionFault::SameName((*same).clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::tree::Metadata;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.split('/').filter(|name| !name.is_empty())).unwrap()
    }

    fn wanted(paths: &[(&str, &str)]) -> Vec<WantedPath> {
        paths
            .iter()
            .map(|(one, name)| WantedPath { path: path(one), name: name.as_bytes().to_vec() })
            .collect()
    }

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { name: name.into(), kind, metadata: Metadata::default(), hard_link: None }
    }

    /// The walk through `a/{b/{c,d},e}`, `f`, `z/b/c`; each place that is told, with a slash if a directory begins, and in
    /// brackets where it ends.
    fn walk(selection: &mut Selection) -> Vec<String> {
        let mut told = Vec::new();
        let names = ["+", "+a", "+b", "c", "d", "-", "e", "-", "f", "+z", "+b", "c", "-", "-", "-"];
        for name in names {
            let (event, shown): (Event, fn(RelPath) -> String) = match name.split_at_checked(1) {
                Some(("+", name)) => (Event::Enter(entry(name, Kind::Directory)), |path| format!("{path}/")),
                Some(("-", _)) => (Event::Leave, |path| format!("({path})")),
                _ => (Event::Leaf(entry(name, Kind::Fifo)), |path| path.to_string()),
            };
            told.extend(selection.next(&event).unwrap().map(|selected| shown(selected.path)));
        }
        assert_eq!(selection.depth(), 0);
        told
    }

    fn rules(lines: &[&str]) -> RuleList {
        RuleList::from_lines(&lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_whole_tree_goes_where_it_says() {
        let mut all = Selection::new(Vec::new(), RuleList::default()).unwrap();
        let told = walk(&mut all).join(" ");
        assert_eq!(told, "./ a/ a/b/ a/b/c a/b/d (a/b) a/e (a) f z/ z/b/ z/b/c (z/b) (z) (.)");
    }

    #[test]
    fn only_what_is_asked_for_comes_under_its_last_name_or_another() {
        let mut some = Selection::new(wanted(&[("f", "f"), ("a/b", "new")]), RuleList::default()).unwrap();
        // A second walk is told the same.
        for _ in 0..2 {
            assert_eq!(walk(&mut some), ["new/", "new/c", "new/d", "(new)", "f"]);
        }
        assert_eq!(some.missing().count(), 0);
        let mut none =
            Selection::new(wanted(&[("a/x", "x"), ("f/y", "y"), ("b", "b")]), RuleList::default()).unwrap();
        assert_eq!(walk(&mut none), [""; 0]);
        assert_eq!(none.missing().map(ToString::to_string).collect::<Vec<_>>(), ["a/x", "b", "f/y"]);
    }

    #[test]
    fn rules_leave_out_what_they_match_and_what_is_in_it() {
        let mut all = Selection::new(Vec::new(), rules(&["- /a/b", "- c"])).unwrap();
        assert_eq!(walk(&mut all), ["./", "a/", "a/e", "(a)", "f", "z/", "z/b/", "(z/b)", "(z)", "(.)"]);
        let mut some =
            Selection::new(wanted(&[("a/b", "x"), ("f", "f")]), rules(&["- /b/c", "- /f"])).unwrap();
        assert_eq!(walk(&mut some), ["x/", "x/d", "(x)"]);
        assert_eq!(some.missing().count(), 0, "it is there, and was left out");
    }

    #[test]
    fn what_is_unclear_is_refused() {
        let fault = |paths, rules| Selection::new(wanted(paths), rules).unwrap_err().to_string();
        assert_eq!(fault(&[("a/b", "b"), ("z/b", "b")], RuleList::default()), "two of the paths would be b");
        assert_eq!(
            fault(&[("a/b", "b"), ("a", "a")], RuleList::default()),
            "a/b lies in a, which is asked for too"
        );
        assert_eq!(fault(&[("", "x")], RuleList::default()), "the tree itself is no path in it");
        assert!(fault(&[], rules(&[": .rules"])).contains("dir-merge"));
        assert!(
            Selection::new(wanted(&[("a", "a"), ("a", "a")]), RuleList::default()).is_ok(),
            "twice the same"
        );
    }
}
