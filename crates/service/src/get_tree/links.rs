//! Entries of a tree besides files' contents: pipes, sockets and devices where they are asked for, and further names of
//! files, made when all first names are in place.

use std::collections::HashMap;
use std::path::Path;

use towpath_api::ApiError;
use towpath_api::copy::Preserve;
use towpath_content::lock::lock;
use towpath_content::tree::{Entry, Event, Kind, LEFT_OUT};
use towpath_files::{FileError, Found, Overwrite, RelPath, ScanOptions, Selected, Selection, Settled, Stamp};
use towpath_targets::links::FirstNames;
use towpath_targets::spool::SpoolReader;
use towpath_words as words;

use super::{TreeTarget, decode};

/// First names that are known to be what they should: a further name makes the index doubt them.
const VERIFIED: usize = 4096;

impl TreeTarget {
    /// True if names of this entry become names of one inode.
    pub(super) fn is_linked(&self, entry: &Entry) -> bool {
        let is_made = match &entry.kind {
            Kind::File { oid, .. } => *oid != Some(LEFT_OUT),
            kind => left_out(kind, &self.preserve).is_none(),
        };
        self.preserve.hard_links && entry.hard_link.is_some() && is_made
    }

    /// Makes a pipe, socket or device; one of an interrupted run stays.
    pub(super) fn special(&self, path: &RelPath, entry: &Entry) {
        let (metadata, nodes) = (self.take(entry), self.placing.destination.nodes());
        match nodes.special(path, &entry.kind, &metadata, Overwrite::Never) {
            Err(FileError::Exists { .. }) if self.is_resumed && self.is_at(path, &entry.kind) => {}
            made => self.made(path, made),
        }
    }

    /// Tells what is wrong with something that was to be made.
    pub(super) fn made(&self, path: &RelPath, made: Result<Settled, FileError>) {
        let problem = match made {
            Ok(Settled { lacking, .. }) => lacking,
            Err(error) => Some(error),
        };
        problem.iter().for_each(|error| self.problem(path, error));
    }

    /// Makes all further names of files.
    pub(super) fn make_links(&self, reader: SpoolReader, selection: &mut Selection) -> Result<(), ApiError> {
        let mut firsts = FirstNames::default();
        let mut verified = HashMap::new();
        decode(reader, |step| {
            let Some(located) = step else { return Ok(()) };
            self.problems.wait_for_room();
            if located.event.entry().is_some() {
                firsts.pass();
            }
            let selected = selection.next(&located.event).map_err(|error| words::file(&error))?;
            let (Some(Selected { path, is_named }), Event::Leaf(entry)) = (selected, located.event) else {
                return Ok(());
            };
            if is_named && lock(&self.taken).contains(&path) || !self.is_linked(&entry) {
                return Ok(());
            }
            // An error of its number was told.
            if let Ok(Some(first)) = firsts.first_of(&entry, &path)
                && let Err(error) = self.make_link(&first, &path, &entry.kind, &mut verified)
            {
                self.problem(&path, &error);
            }
            Ok(())
        })
    }

    /// Gives what is at `first` the name `path`, if it is what the sender says of that; `verified` are those of which that
    /// is known.
    fn make_link(
        &self,
        first: &RelPath,
        path: &RelPath,
        kind: &Kind,
        verified: &mut HashMap<RelPath, Stamp>,
    ) -> Result<(), FileError> {
        let found = self.look(first)?.filter(|found| {
            let is_known = |stamp: &Stamp| stamp.same_bytes(&found.stamp);
            verified.get(first).is_some_and(is_known) || self.is_what(first, found, kind)
        });
        let Some(found) = found else {
            let why = "the first name of this file is not there, or is another file's";
            return Err(FileError::new("link", Path::new("the sender's tree"), std::io::Error::other(why)));
        };
        if verified.len() >= VERIFIED {
            verified.clear();
        }
        verified.insert(first.clone(), found.stamp);
        match self.placing.destination.nodes().hard_link(first, &found.stamp, path, Overwrite::Never) {
            Err(FileError::Exists { .. }) if self.is_resumed && self.is_at(path, kind) => Ok(()),
            linked => linked.map(drop),
        }
    }

    fn is_at(&self, path: &RelPath, kind: &Kind) -> bool {
        matches!(self.look(path), Ok(Some(found)) if self.is_what(path, &found, kind))
    }

    fn look(&self, path: &RelPath) -> Result<Option<Found>, FileError> {
        self.placing.destination.look(path, &ScanOptions { files: false, ..ScanOptions::default() })
    }

    /// True if what was found at `path` is what a descriptor says.
    fn is_what(&self, path: &RelPath, found: &Found, kind: &Kind) -> bool {
        match (&found.entry.kind, kind) {
            (Kind::File { size, .. }, Kind::File { size: told, oid: Some(oid), .. }) => {
                size == told && self.placing.holds(path, &found.stamp, oid)
            }
            (found, told) => found == told,
        }
    }
}

/// Reason why an entry of this kind is left out, in words.
pub(super) const fn left_out(kind: &Kind, preserve: &Preserve) -> Option<&'static str> {
    match kind {
        Kind::File { .. } | Kind::Directory | Kind::Symlink { .. } => None,
        Kind::Fifo if !preserve.specials => Some("a FIFO is left out; --specials makes it"),
        Kind::Socket if !preserve.specials => Some("a socket is left out; --specials makes it"),
        Kind::Fifo | Kind::Socket => None,
        _ if !preserve.devices => Some("a device is left out; --devices makes it, as root"),
        _ => None,
    }
}
