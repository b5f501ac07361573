//! Removing files at the source once they are in place (`--remove-source-files`).
//!
//! A name of a file with several waits until the source has been read: with fewer names left, the
//! others would no longer be seen to belong together.

use std::sync::Mutex;

use super::events::{Events, failed_at};
use super::source::Located;
use towpath_content::lock::lock;

/// Removals to make, and when.
pub struct Removal {
    events: Events,
    /// None once the source has been read.
    waiting: Mutex<Option<Vec<Located>>>,
}

impl Removal {
    /// The source is being read.
    pub fn new(events: Events) -> Self {
        Self { events, waiting: Mutex::new(Some(Vec::new())) }
    }

    /// Removes a file, now or as soon as the source has been read.
    pub fn remove(&self, located: Located) {
        let mut waiting = lock(&self.waiting);
        match &mut *waiting {
            Some(waiting) if located.links > 1 => waiting.push(located),
            _ => {
                drop(waiting);
                self.remove_now(&located);
            }
        }
    }

    /// The source has been read to its end.
    pub fn source_is_read(&self) {
        let waiting = lock(&self.waiting).take();
        waiting.into_iter().flatten().for_each(|located| self.remove_now(&located));
    }

    fn remove_now(&self, located: &Located) {
        if let Err(error) = located.remove() {
            self.events.failure(failed_at(&located.whole_path(), &error));
        }
    }
}
