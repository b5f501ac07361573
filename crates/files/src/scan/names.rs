//! The names of one directory, collected in any order and handed out sorted.

use std::io;
use std::os::fd::BorrowedFd;

use super::ScanOptions;
use super::arena::Arena;
use super::spill::{RunReader, Spill, SpillRun};
use crate::listing::for_each_name;
use crate::names::check_name;

/// The names of one directory in ascending order, for merging them with another list. Memory is
/// bounded as in a scan.
#[derive(Debug)]
pub struct DirNames {
    spill: Spill,
    names: SortedNames,
}

impl DirNames {
    /// Reads the names in `dir` but those that `skip` tells.
    pub(crate) fn read(
        dir: BorrowedFd<'_>,
        options: &ScanOptions,
        skip: &dyn Fn(&[u8]) -> bool,
    ) -> io::Result<Self> {
        let mut spill = Spill::new(&options.scratch);
        let mut sorter = Sorter::new(&mut spill, options.names_budget);
        for_each_name(dir, &mut |name| match check_name(name).is_err() || skip(name) {
            true => Ok(()),
            false => sorter.push(name),
        })?;
        let names = sorter.finish()?;
        Ok(Self { spill, names })
    }

    /// The next name, until there are no more.
    #[allow(clippy::should_implement_trait, reason = "a failure ends it, and the caller must see that")]
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.names.next(&self.spill)
    }
}

/// Takes names until memory is short, then writes them out as a sorted run.
#[derive(Debug)]
pub(super) struct Sorter<'s> {
    spill: &'s mut Spill,
    mark: u64,
    /// Bytes the arena may come to.
    allowance: usize,
    arena: Arena,
    runs: Vec<SpillRun>,
}

impl<'s> Sorter<'s> {
    pub(super) fn new(spill: &'s mut Spill, allowance: usize) -> Self {
        let allowance = allowance.min(Arena::MAX);
        Self { mark: spill.mark(), spill, allowance, arena: Arena::default(), runs: Vec::new() }
    }

    pub(super) fn push(&mut self, name: &[u8]) -> io::Result<()> {
        self.arena.push(name);
        if self.arena.cost() > self.allowance { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.arena.sort();
        self.runs.push(self.spill.write(self.arena.iter())?);
        self.arena.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<SortedNames> {
        if !self.runs.is_empty() && !self.arena.is_empty() {
            self.write_run()?;
        }
        let names = match self.spill.merge_all(self.runs)? {
            Some(run) => NameList::Spilled(RunReader::new(run)),
            None => {
                self.arena.sort();
                NameList::Memory { arena: self.arena, next: 0 }
            }
        };
        Ok(SortedNames { names, last: Vec::new(), mark: self.mark })
    }
}

/// A directory's names in ascending order, none twice.
#[derive(Debug)]
pub(super) struct SortedNames {
    names: NameList,
    /// The name handed out last: a directory that changes while it is read may show one twice.
    last: Vec<u8>,
    mark: u64,
}

#[derive(Debug)]
enum NameList {
    Memory { arena: Arena, next: usize },
    Spilled(RunReader),
}

impl SortedNames {
    /// No names.
    pub(super) fn none(spill: &Spill) -> Self {
        let names = NameList::Memory { arena: Arena::default(), next: 0 };
        Self { names, last: Vec::new(), mark: spill.mark() }
    }

    /// The next name.
    pub(super) fn next(&mut self, spill: &Spill) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.names.next(spill)? {
                Some(name) if name == self.last => {}
                Some(name) => {
                    self.last.clear();
                    self.last.extend_from_slice(name);
                    return Ok(Some(self.last.clone()));
                }
                None => return Ok(None),
            }
        }
    }

    /// Bytes of memory in use.
    pub(super) const fn cost(&self) -> usize {
        match &self.names {
            NameList::Memory { arena, .. } => arena.cost(),
            NameList::Spilled(_) => 0,
        }
    }

    /// Position at which the scratch file is cut off when these names are done with.
    pub(super) const fn mark(&self) -> u64 {
        self.mark
    }
}

impl NameList {
    fn next(&mut self, spill: &Spill) -> io::Result<Option<&[u8]>> {
        match self {
            Self::Spilled(reader) => reader.next(spill),
            Self::Memory { arena, next } => {
                *next += 1;
                Ok(arena.get(*next - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn names_come_sorted_and_once_whatever_the_budget(
            names in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..300),
            allowance in 0usize..4000,
        ) {
            let tmp = tempfile::tempdir().unwrap();
            let mut spill = Spill::new(tmp.path());
            let mut sorter = Sorter::new(&mut spill, allowance);
            names.iter().for_each(|name| sorter.push(name).unwrap());
            let mut sorted = sorter.finish().unwrap();
            let got: Vec<_> = std::iter::from_fn(|| sorted.next(&spill).unwrap()).collect();
            let wanted: Vec<_> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(got, wanted);
        }
    }

    #[test]
    fn few_names_need_no_scratch_file() {
        let mut spill = Spill::new(std::path::Path::new("/nonexistent"));
        let mut sorter = Sorter::new(&mut spill, 1000);
        sorter.push(b"b").and(sorter.push(b"a")).unwrap();
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(sorted.next(&spill).unwrap(), Some(b"a".to_vec()));
        let mut sorter = Sorter::new(&mut spill, 0);
        assert!(sorter.push(b"a").is_err());
    }
}
