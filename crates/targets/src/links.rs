//! Hard links of a described tree: which of one file's names comes first, in little memory however many there are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use towpath_content::tree::Entry;
use towpath_files::{FileError, RelPath};

/// Groups that are kept in memory.
const FEW: u64 = 64 << 10;
/// Bytes of first names: they lie where temporary files do, which may be memory.
const MOST: u64 = 1 << 30;

/// Places by number. Numbers are a sender's: beyond the first ones this is a file, in which those that do not come are
/// holes.
#[derive(Debug, Default)]
pub struct NumberedPlaces {
    /// One more than the place; 0: none.
    few: Vec<u64>,
    others: Option<File>,
}

impl NumberedPlaces {
    /// The place with this number.
    pub fn get(&self, number: u64) -> io::Result<Option<u64>> {
        let met = match (number.checked_sub(FEW), &self.others) {
            (None, _) => self.few.get(number as usize).copied().unwrap_or(0),
            (Some(_), None) => 0,
            (Some(at), Some(file)) => {
                let mut met = [0; 8];
                match file.read_exact_at(&mut met, at * 8) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                    read => read.map(|()| u64::from_le_bytes(met))?,
                }
            }
        };
        Ok(met.checked_sub(1))
    }

    /// Notes a place.
    pub fn set(&mut self, number: u64, place: u64) -> io::Result<()> {
        let Some(at) = number.checked_sub(FEW) else {
            let number = number as usize;
            self.few.resize(self.few.len().max(number + 1), 0);
            self.few[number] = place + 1;
            return Ok(());
        };
        let file = match &mut self.others {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(&(place + 1).to_le_bytes(), at * 8)
    }
}

/// First names of the groups of a walk along a descriptor.
#[derive(Debug, Default)]
pub struct FirstNames {
    places: NumberedPlaces,
    names: Option<File>,
    end: u64,
    /// Entries that were passed, wanted or not.
    entries: u64,
}

impl FirstNames {
    /// An entry of the walk.
    pub const fn pass(&mut self) {
        self.entries += 1;
    }

    /// The first name that was met of the file that the last entry is a name of. None if it has no other, or this is
    /// the first.
    pub fn first_of(&mut self, entry: &Entry, path: &RelPath) -> Result<Option<RelPath>, FileError> {
        let Some(group) = entry.hard_link else { return Ok(None) };
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group >= self.entries {
            let why = "a hard link to something that its sender did not send";
            return Err(FileError::new("link", Path::new("the sender's tree"), io::Error::other(why)));
        }
        let noted = |error| FileError::new("note", Path::new("a link"), error);
        match self.places.get(group).map_err(noted)? {
            Some(place) => self.read(place).map_err(noted)?.map(Some),
            None => self.note(group, path).map_err(noted).map(|()| None),
        }
    }

    fn note(&mut self, group: u64, path: &RelPath) -> io::Result<()> {
        let bytes = path.as_bytes();
        let record = [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
        if self.end + record.len() as u64 > MOST {
            return Err(io::Error::other("the tree has too many hard links: get it in parts"));
        }
        let file = match &mut self.names {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(&record, self.end)?;
        self.places.set(group, self.end)?;
        self.end += record.len() as u64;
        Ok(())
    }

    fn read(&self, place: u64) -> io::Result<Result<RelPath, FileError>> {
        let Some(file) = &self.names else { return Ok(Ok(RelPath::root())) };
        let mut len = [0; 4];
        file.read_exact_at(&mut len, place)?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        file.read_exact_at(&mut bytes, place + 4)?;
        Ok(RelPath::new(bytes.split(|&byte| byte == b'/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::tree::{Kind, Metadata};

    #[test]
    fn a_group_of_any_number_takes_little_memory() {
        let mut groups = NumberedPlaces::default();
        let numbers = [0, 7, FEW - 1, FEW, FEW + 9, 1 << 33];
        numbers.iter().for_each(|&group| assert_eq!(groups.get(group).unwrap(), None));
        numbers.iter().zip(0..).for_each(|(&group, note)| groups.set(group, note).unwrap());
        for (&group, note) in numbers.iter().zip(0..) {
            assert_eq!(groups.get(group).unwrap(), Some(note), "{group}");
        }
        assert_eq!(groups.get(8).unwrap(), None);
        assert_eq!(groups.get(FEW + 1).unwrap(), None);
        assert!(groups.few.len() as u64 <= FEW);
    }

    #[test]
    fn a_later_name_finds_the_first_and_a_number_from_nowhere_is_refused() {
        let entry = |hard_link| Entry {
            name: b"n".to_vec(),
            kind: Kind::Fifo,
            metadata: Metadata::default(),
            hard_link,
        };
        let path = |names: &[&str]| RelPath::new(names).unwrap();
        let mut firsts = FirstNames::default();
        let mut met = |group, names: &[&str]| {
            firsts.pass();
            firsts.first_of(&entry(group), &path(names))
        };
        assert_eq!(met(None, &["single"]).unwrap(), None);
        assert_eq!(met(Some(0), &["dir", "one"]).unwrap(), None);
        assert_eq!(met(Some(1), &["other"]).unwrap(), None);
        assert_eq!(met(Some(0), &["z"]).unwrap(), Some(path(&["dir", "one"])));
        assert_eq!(met(Some(1), &["zz"]).unwrap(), Some(path(&["other"])));
        assert!(met(Some(6), &["from nowhere"]).is_err());
        assert!(met(Some(u64::MAX), &["from nowhere"]).is_err());
    }
}
