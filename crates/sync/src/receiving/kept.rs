//! What a receiving side keeps until the end of a copy: what waits for a name that a directory has, and files that only the
//! destination has; and beyond it, where it is interrupted: its temporaries.

use std::path::Path;
use std::sync::Mutex;

use towpath_content::lock::lock;
use towpath_content::tree::Time;
use towpath_files::{FileError, RelPath, Stamp};
use towpath_reuse::candidates::renames::Spare;

use crate::error::Obstacle;
use crate::notes::RoomRecord;
use towpath_sync_messages::records::Records;

/// Directories in the way of something else: what waits for their places waits for the end of the copy.
const MOST_ROOMS: u64 = 4096;

/// See the head of this module.
#[derive(Default)]
pub struct Kept {
    state: Mutex<KeptState>,
}

#[derive(Default)]
struct KeptState {
    /// Temporaries have a folder, which is noted.
    has_staging: bool,
    rooms: Records<RoomRecord>,
    spare: Spare,
}

impl Kept {
    /// True if something was written, or is about to be.
    pub fn has_staging(&self) -> bool {
        lock(&self.state).has_staging
    }

    /// There are temporaries of an interrupted copy.
    pub fn adopted(&self) {
        lock(&self.state).has_staging = true;
    }

    /// Notes the folder of the temporaries by `note`, before the first.
    pub fn note_staging(&self, note: impl FnOnce() -> Result<(), FileError>) -> Result<(), FileError> {
        let mut state = lock(&self.state);
        if !state.has_staging {
            note()?;
            state.has_staging = true;
        }
        Ok(())
    }

    /// Something is complete but for its name, which a directory has: at the end it may take that one's place.
    pub fn put_off(&self, room: &RoomRecord) -> Result<(), FileError> {
        let rooms = &mut lock(&self.state).rooms;
        if rooms.len() >= MOST_ROOMS {
            return Err(Obstacle::TooMany.to("replace", Path::new("a directory")));
        }
        let noted = rooms.push(room).map(drop);
        noted.map_err(|error| FileError::new("note", Path::new("a directory in the way"), error))
    }

    /// Takes what was put off.
    pub fn take_rooms(&self) -> Records<RoomRecord> {
        std::mem::take(&mut lock(&self.state).rooms)
    }

    /// Gives it back.
    pub fn give_back_rooms(&self, rooms: Records<RoomRecord>) {
        lock(&self.state).rooms = rooms;
    }

    /// Only the destination has this file: it may be one that was renamed.
    pub fn add_spare(&self, path: RelPath, stamp: Stamp) {
        lock(&self.state).spare.add(path, stamp);
    }

    /// Files that only the destination has, and that may be one of this size and time.
    pub fn spares(&self, size: u64, modified: Time) -> Vec<(RelPath, Stamp)> {
        lock(&self.state).spare.guesses(size, modified)
    }

    /// Takes one of them for good. False: another file took it.
    pub fn take_spare(&self, path: &RelPath, stamp: &Stamp) -> bool {
        lock(&self.state).spare.take(path, stamp)
    }
}
