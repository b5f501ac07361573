//! The sender's entries as the person asked for them: those that were not are left out, and metadata are changed. A
//! sender that is not trusted gets nothing else written.

use std::sync::Arc;

use towpath_content::tree::{Entry, Kind};
use towpath_files::RelPath;
use towpath_files::filter::{Filter, safe_links};

use super::privileges::drop_unasked;
use super::report::EntryReport;
use super::rewrite::Rewrite;
use crate::error::{CopyError, LeftOut};
use crate::listed::RequestedPaths;
use crate::receiving::Receiving;

/// Bytes of a path below the transfer's root, at most: four times what the system takes at once.
const MAX_PATH: usize = 16 << 10;

/// Rules for the entries of a sender's tree.
pub(super) struct EntryRules {
    receiving: Arc<Receiving>,
    /// The person's own rules, asked again about every entry that a stranger sends.
    checker: Option<Filter>,
    requested: RequestedPaths,
    rewrite: Rewrite,
}

impl EntryRules {
    /// Rules of the copy's options.
    pub(super) fn new(receiving: &Arc<Receiving>, checker: Option<Filter>) -> Result<Self, CopyError> {
        let options = &receiving.options;
        let (requested, rewrite) =
            (RequestedPaths::new(options)?, Rewrite::new(options, receiving.policy.umask())?);
        Ok(Self { receiving: Arc::clone(receiving), checker, requested, rewrite })
    }

    /// True if an entry may come at all; `is_contents` as with [`RequestedPaths::covers`].
    pub(super) fn covers(&mut self, shown: &RelPath, is_dir: bool, is_contents: bool) -> bool {
        if let Some(checker) = &mut self.checker
            && !shown.is_root()
            && !checker.shows(shown, is_dir)
        {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Filtered);
            return false;
        }
        let covers = self.requested.covers(shown, is_dir, is_contents);
        if !covers {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Unasked);
        }
        covers
    }

    /// True if an entry can have its name here.
    pub(super) fn takes_name(&self, name: &[u8], shown: &RelPath) -> bool {
        if shown.as_bytes().len() > MAX_PATH {
            self.receiving.leave_out(&shown.as_bytes()[..1024], LeftOut::LongPath(MAX_PATH));
            return false;
        }
        if towpath_files::is_staging_name(name) {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Temporary);
            return false;
        }
        true
    }

    /// Kinds and sizes that were not asked for.
    pub(super) fn leaves_out(&self, entry: &Entry, shown: &RelPath) -> bool {
        let (options, preserve) = (&self.receiving.options, &self.receiving.options.preserve);
        let why = match &entry.kind {
            Kind::File { size, .. } => {
                return options.min_size.is_some_and(|min| *size < min)
                    || options.max_size.is_some_and(|max| *size > max);
            }
            Kind::Symlink { target } if preserve.links => {
                if !options.safe_links || !safe_links::is_unsafe(target, shown) {
                    return false;
                }
                LeftOut::LinkOut
            }
            Kind::Symlink { .. } => LeftOut::Link,
            Kind::Fifo | Kind::Socket if preserve.specials => return false,
            Kind::Fifo => LeftOut::Fifo,
            Kind::Socket => LeftOut::Socket,
            _ if preserve.devices => return false,
            _ => LeftOut::Device,
        };
        self.receiving.leave_out(shown.as_bytes(), why);
        true
    }

    /// Makes metadata what the person asked for.
    pub(super) fn rewrite(&self, entry: &mut Entry, report: &EntryReport) {
        let preserve = &self.receiving.options.preserve;
        report.dropped(&drop_unasked(&mut entry.metadata, &entry.kind, preserve));
        self.rewrite.apply(&mut entry.metadata, &entry.kind);
    }
}
