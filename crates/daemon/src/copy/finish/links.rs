//! Further names of files: made when the first ones are in place.

use std::sync::Arc;

use towpath_api::ApiError;
use towpath_content::tree::{Kind, Time};
use towpath_files::{FileError, Overwrite, ScanOptions};

use super::noted::{LinkRecord, Stop};
use crate::copy::events::CopyEvent;
use crate::copy::judge::Changes;
use crate::copy::merge::Merge;
use crate::copy::receiving::{Receiving, add};

impl Merge {
    pub(super) fn make_links(&mut self) -> Result<(), ApiError> {
        let receiving = Arc::clone(&self.receiving);
        let mut links = std::mem::take(&mut self.links);
        let look = self.look.clone();
        let made = links.for_each(|record: LinkRecord| {
            receiving.check().map_err(Stop)?;
            if let Err(error) = make_link(&receiving, &record, &look) {
                receiving.problem(&record.spot.shown, &error);
                receiving.settled(record.entry, false);
            }
            Ok(())
        });
        made.map_err(|Stop(error)| error)
    }
}

fn make_link(receiving: &Receiving, record: &LinkRecord, look: &ScanOptions) -> Result<(), FileError> {
    let (first, path) = (record.first.path()?, record.spot.path()?);
    let placing = receiving.opened();
    let found = |path| match placing.map_or(Ok(None), |placing| placing.destination.look(path, look)) {
        // A real run would have made way for the directories on the way there.
        Err(_) if receiving.options.dry_run => Ok(None),
        found => found,
    };
    let (one, other) = (found(&first)?, found(&path)?);
    if let (Some(one), Some(other)) = (&one, &other)
        && one.stamp.same_file(&other.stamp)
    {
        receiving.unchanged(record.entry, &other.stamp);
        return Ok(());
    }
    let file = Kind::File { size: record.size, oid: None, extents: None };
    let changes = match record.is_new {
        true => Changes { new: true, ..Changes::default() },
        false => Changes::default(),
    };
    receiving.tell(CopyEvent::Item {
        changes: changes.letters(b'h', &file, receiving.options.preserve.times),
        path: record.spot.shown.clone(),
        target: Some(record.first.shown.clone()),
        size: record.size,
        modified: Time { seconds: record.seconds, nanos: record.nanos },
    });
    if record.is_new {
        receiving.count(|counts| add(&mut counts.created, &file));
    }
    if receiving.options.dry_run {
        return Ok(());
    }
    let placing = receiving.placing()?;
    let Some(one) = one else {
        let whole = placing.whole_path(&first);
        return Err(FileError::new("link to", &whole, rustix::io::Errno::NOENT));
    };
    if other.is_some() {
        receiving.back_up(&path)?;
    }
    let overwrite = if other.is_some() { Overwrite::ReplaceAny } else { Overwrite::Never };
    placing.destination.make_hard_link(&first, &one.stamp, &path, overwrite)?;
    receiving.settled(record.entry, true);
    Ok(())
}
