//! Records kept in a file without a name while a copy runs: what would otherwise grow with the
//! tree in memory. They are read back in the order in which they were written.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use prost::Message;
use towpath_files::display_name;

/// Bytes collected before they are written.
const BUFFER: usize = 64 << 10;
/// Bytes of a list, at most: it lies where temporary files do, which may be memory.
pub const MOST: u64 = 1 << 30;

const TOO_MANY: &str = "the tree needs more than 1 GiB of notes for the end of the copy: copy it in parts";

/// A list of messages on disk.
pub struct Records<M> {
    file: Option<File>,
    written: u64,
    pending: Vec<u8>,
    count: u64,
    kind: PhantomData<M>,
}

impl<M> Default for Records<M> {
    fn default() -> Self {
        Self { file: None, written: 0, pending: Vec::new(), count: 0, kind: PhantomData }
    }
}

impl<M: Message + Default> Records<M> {
    /// Appends a record and returns where it begins. An error if there are more than [`MOST`] bytes of them.
    pub fn push(&mut self, record: &M) -> io::Result<u64> {
        let at = self.written + self.pending.len() as u64;
        if at > MOST {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, TOO_MANY));
        }
        let bytes = record.encode_to_vec();
        self.pending.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.pending.extend_from_slice(&bytes);
        self.count += 1;
        if self.pending.len() >= BUFFER {
            self.write_out()?;
        }
        Ok(at)
    }

    /// Number of records.
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn write_out(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                none.insert(tempfile::tempfile().map_err(|error| no_place(&std::env::temp_dir(), &error))?)
            }
        };
        file.write_all_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// The record that begins at `at`.
    pub fn get(&mut self, at: u64) -> io::Result<M> {
        if let Some(at) = at.checked_sub(self.written) {
            return self.pending_at(usize::try_from(at).unwrap_or(usize::MAX));
        }
        let file = self.file.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut len = [0; 4];
        file.read_exact_at(&mut len, at)?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        file.read_exact_at(&mut bytes, at + 4)?;
        M::decode(&bytes[..]).map_err(io::Error::other)
    }

    /// A record that was not written yet.
    fn pending_at(&self, at: usize) -> io::Result<M> {
        let (len, rest) = self
            .pending
            .get(at..)
            .and_then(|rest| rest.split_first_chunk())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let record = rest.get(..u32::from_le_bytes(*len) as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        M::decode(record).map_err(io::Error::other)
    }

    /// Calls `each` with every record, in order.
    pub fn for_each<E: From<io::Error>>(
        &mut self,
        mut each: impl FnMut(M) -> Result<(), E>,
    ) -> Result<(), E> {
        // A few need no file.
        let written: Box<dyn Read + '_> = match &self.file {
            Some(file) => Box::new(BufReader::new(At { file, at: 0, end: self.written })),
            None => Box::new(io::empty()),
        };
        let mut reader = written.chain(&self.pending[..]);
        for _ in 0..self.count {
            let mut len = [0; 4];
            reader.read_exact(&mut len)?;
            let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
            reader.read_exact(&mut bytes)?;
            each(M::decode(&bytes[..]).map_err(io::Error::other)?)?;
        }
        Ok(())
    }
}

fn no_place(folder: &Path, error: &io::Error) -> io::Error {
    let shown = display_name(folder.as_os_str().as_bytes());
    io::Error::other(format!(
        "no notes can be kept in {shown} ({}); TMPDIR names another folder",
        error.kind()
    ))
}

struct At<'f> {
    file: &'f File,
    at: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buf.len());
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(bytes = "vec", tag = "1")]
        name: Vec<u8>,
    }

    #[test]
    fn records_come_back_in_order_and_by_their_place() {
        let mut records = Records::default();
        let names: Vec<_> = (0..5000).map(|i| format!("{i}{}", "x".repeat(i % 90)).into_bytes()).collect();
        let places: Vec<_> =
            names.iter().map(|name| records.push(&Named { name: name.clone() }).unwrap()).collect();
        for at in [0, 4321, 4999] {
            assert_eq!(records.get(places[at]).unwrap().name, names[at]);
        }
        let mut read = Vec::new();
        records
            .for_each(|record: Named| {
                read.push(record.name);
                io::Result::Ok(())
            })
            .unwrap();
        assert_eq!((read, records.len()), (names, 5000));
    }

    #[test]
    fn a_list_has_a_limit_that_is_an_error() {
        let mut records = Records { written: MOST + 1, ..Records::default() };
        let error = records.push(&Named { name: Vec::new() }).unwrap_err();
        assert!(error.to_string().contains("1 GiB of notes"), "{error}");
    }

    #[test]
    fn no_records_need_no_file() {
        let mut records = Records::<Named>::default();
        records.for_each(|_| io::Result::Ok(())).unwrap();
        assert!(records.file.is_none());
    }

    #[test]
    fn a_few_records_need_no_file_and_others_say_where_it_should_be() {
        let mut records = Records::default();
        records.push(&Named { name: b"one".to_vec() }).unwrap();
        let mut read = Vec::new();
        let mut note = |record: Named| {
            read.push(record.name);
            io::Result::Ok(())
        };
        records.for_each(&mut note).unwrap();
        assert!(read == [b"one"] && records.file.is_none());
        let error = no_place(Path::new("/x"), &io::ErrorKind::PermissionDenied.into());
        let expected = "no notes can be kept in /x (permission denied); TMPDIR names another folder";
        assert_eq!(error.to_string(), expected);
    }
}
