//! The directories that the walk is in, outermost first.

use std::io;
use std::path::Path;

use towpath_content::tree::Metadata;
use towpath_files::{FileError, RelPath, display_name};

use super::extras::ExtraNames;
use crate::error::Obstacle;
use crate::notes::{DirNumber, Directories, Position, ROOT};

/// Bytes of attributes of the directories that the walk is in, at most: it keeps them until it leaves.
const MAX_OPEN_ATTRIBUTES: usize = 8 << 20;

/// Position of the walk.
#[derive(Default)]
pub(super) struct DirStack {
    frames: Vec<DirFrame>,
    /// The innermost directory, below the destination's root.
    pub(super) path: RelPath,
    /// The same below the transfer's root, for filters and people.
    pub(super) shown: RelPath,
    /// Bytes of attributes that `frames` hold.
    open_attributes: usize,
}

/// A directory that the walk is in.
pub(super) struct DirFrame {
    /// Its name below the transfer's root; empty for that root.
    pub(super) name: Vec<u8>,
    /// The destination has it below another directory, not as its root.
    pub(super) is_below: bool,
    /// Number of its note, if something in it was noted.
    pub(super) number: Option<DirNumber>,
    pub(super) state: DirState,
    pub(super) metadata: Metadata,
    /// The destination's names that have not been passed yet.
    pub(super) names: Option<ExtraNames>,
    /// It or something in it is written or removed.
    pub(super) is_changed: bool,
    /// It was made sure that it can be written to.
    pub(super) is_writable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirState {
    /// Stands for the destination itself; nothing is said of it.
    Top,
    /// It and all in it is passed over.
    Skipped,
    /// It is there.
    Existing,
    /// It was made, or would be in a dry run.
    New,
}

impl DirStack {
    /// Number of directories.
    pub(super) const fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The innermost one.
    pub(super) fn last_mut(&mut self) -> Option<&mut DirFrame> {
        self.frames.last_mut()
    }

    /// The state of the innermost one.
    pub(super) fn state(&self) -> Option<DirState> {
        self.frames.last().map(|frame| frame.state)
    }

    /// Goes into a directory of which nothing is kept: the top, or one that is passed over.
    pub(super) fn enter_bare(&mut self, state: DirState) {
        self.frames.push(DirFrame::new(Vec::new(), state, Metadata::default()));
    }

    /// Goes into a directory, which is at `path` and is called `shown`.
    pub(super) fn enter(
        &mut self,
        frame: DirFrame,
        (path, shown): (&RelPath, &RelPath),
    ) -> Result<(), FileError> {
        self.open_attributes += frame.attribute_bytes();
        if self.open_attributes > MAX_OPEN_ATTRIBUTES {
            self.open_attributes -= frame.attribute_bytes();
            return Err(Obstacle::Attributes.to("enter", Path::new(&display_name(shown.as_bytes()))));
        }
        self.path.clone_from(path);
        self.shown.clone_from(shown);
        self.frames.push(frame);
        Ok(())
    }

    /// Goes out of the innermost directory.
    pub(super) fn leave(&mut self) -> Option<DirFrame> {
        let frame = self.frames.pop()?;
        self.open_attributes -= frame.attribute_bytes();
        if !frame.name.is_empty() {
            self.shown.pop();
        }
        if frame.is_below {
            self.path.pop();
        }
        Some(frame)
    }

    /// The innermost directory is going to be written to; whether that is to be made possible first.
    pub(super) fn touch(&mut self) -> bool {
        let Some(frame) = self.frames.last_mut() else { return false };
        frame.is_changed = true;
        let is_writable = frame.is_writable || frame.state == DirState::Top;
        frame.is_writable |= !is_writable;
        !is_writable
    }

    /// A note of what is called `name` in the innermost directory.
    pub(super) fn position(&mut self, name: &[u8], noted: &mut Directories) -> Result<Position, FileError> {
        let dir =
            self.number(noted).map_err(|error| FileError::new("note", Path::new("a directory"), error))?;
        Ok(Position::new(dir, name))
    }

    /// The number of the innermost directory, which has one from now on.
    fn number(&mut self, noted: &mut Directories) -> io::Result<DirNumber> {
        let mut number = ROOT;
        for frame in &mut self.frames {
            number = match frame.number {
                Some(known) => known,
                None if frame.name.is_empty() => number,
                None => noted.add(number, &frame.name)?,
            };
            frame.number = Some(number);
        }
        Ok(number)
    }
}

impl DirFrame {
    /// A directory in which nothing was done.
    pub(super) const fn new(name: Vec<u8>, state: DirState, metadata: Metadata) -> Self {
        Self {
            name,
            is_below: false,
            number: None,
            state,
            metadata,
            names: None,
            is_changed: false,
            is_writable: false,
        }
    }

    fn attribute_bytes(&self) -> usize {
        self.metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum()
    }
}
