//! Rest of an interrupted transfer: a record per destination in the state folder.
//!
//! The record says which object was on its way to which destination and what its temporaries are
//! called. It is written before the first byte and removed after the last sync, and it is trusted
//! for nothing: whatever lies in a temporary is hashed again before it counts.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_content::Oid;
use towpath_content::node_id::hex;
use towpath_files::FileError;

use towpath_content::lock::lock;

/// The extension of the file for small files' temporaries.
const SMALL: &str = "small.jsonl";
/// Time that a get which was just given up may still hold its temporaries: it syncs what came.
const LETTING_GO: Duration = Duration::from_secs(5);
/// The same of a copy: it syncs nothing, and others may go on beside it meanwhile.
const ENDING: Duration = Duration::from_secs(1);
/// Number of copies to one destination that have a record each.
const AT_ONCE: usize = 64;

/// The record of one destination, open for appending.
pub struct Record {
    file: PathBuf,
    /// The temporary (of a file) or the staging folder (of a tree).
    temp: Option<String>,
    /// Temporaries that an earlier run left in a tree's staging folder, by object.
    parts: Mutex<HashMap<Oid, String>>,
    /// Those of small files that this run made, in a file of their own: they are many, and soon
    /// placed.
    small: Mutex<Small>,
    /// Keeps others from this record, where several copies may go to one destination.
    _held: Option<fs::File>,
}

/// The small files on record.
#[derive(Default)]
struct Small {
    file: Option<fs::File>,
    /// The objects by their temporaries.
    waiting: HashMap<String, Oid>,
}

/// Left-over files of an interrupted transfer, as a record has them.
#[derive(Debug, Default)]
pub struct Left {
    /// See [`Record`].
    pub temp: Option<String>,
    /// See [`Record`].
    pub parts: HashMap<Oid, String>,
}

impl Left {
    /// By the lines of a record, unless it is that of another object.
    pub fn of(text: &str, oid: &Oid) -> Option<Self> {
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let text_of = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
        lines.first().and_then(|line| text_of(line, "oid")).filter(|first| *first == oid.to_string())?;
        let mut left = Self::default();
        for line in &lines {
            match (text_of(line, "part").and_then(|part| part.parse().ok()), text_of(line, "temp")) {
                (Some(part), Some(name)) => drop(left.parts.insert(part, name)),
                (None, Some(name)) => left.temp = Some(name),
                _ => {}
            }
        }
        Some(left)
    }
}

impl Record {
    /// The record for bringing `oid` to `destination`: what an interrupted transfer of the very
    /// same left, or an empty one.
    pub fn open(folder: &Path, destination: &Path, oid: &Oid) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Self::of(Self::file(folder, destination), None, destination, oid)
    }

    /// The same for a copy, beside which others may go to the same destination, each with a record of its own: the one
    /// that an interrupted copy left, or a new one. Blocks a moment if the former is still in use: it may be just ending.
    pub fn open_beside_others(folder: &Path, destination: &Path, oid: &Oid) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let start = Instant::now();
        loop {
            let mut is_used = false;
            let (mut new, mut others) = (Vec::new(), Vec::new());
            for path in (0..AT_ONCE).map(|number| Self::slot(folder, destination, number)) {
                let text = fs::read_to_string(&path).unwrap_or_default();
                if Left::of(&text, oid).is_none() {
                    if text.is_empty() { &mut new } else { &mut others }.push(path);
                    continue;
                }
                match held(&path)? {
                    Some(lock) => return Self::of(path, Some(lock), destination, oid),
                    None => is_used = true,
                }
            }
            if !is_used || start.elapsed() >= ENDING {
                // So many were interrupted, and never went on.
                for path in new.into_iter().chain(others) {
                    if let Some(lock) = held(&path)? {
                        return Self::of(path, Some(lock), destination, oid);
                    }
                }
                return Err(io::Error::other(format!("{AT_ONCE} copies go there already")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Record in `file`, or a new record there.
    fn of(file: PathBuf, held: Option<fs::File>, destination: &Path, oid: &Oid) -> io::Result<Self> {
        let mut text = fs::read_to_string(&file).unwrap_or_default();
        text += &fs::read_to_string(file.with_extension(SMALL)).unwrap_or_default();
        let left = Left::of(&text, oid);
        let is_same = left.is_some();
        let Left { temp, parts } = left.unwrap_or_default();
        let is_held = held.is_some();
        let record = Self { file, temp, parts: Mutex::new(parts), small: Mutex::default(), _held: held };
        if !is_same {
            let _ = fs::remove_file(record.beside(SMALL));
            // The lock is that of the very file.
            let _ = if is_held { fs::write(&record.file, "") } else { fs::remove_file(&record.file) };
            let first = json!({ "oid": oid.to_string(), "destination": destination.to_string_lossy() });
            record.append(&format!("{first}\n"))?;
        }
        Ok(record)
    }

    /// True if a transfer of `oid` to `destination` was begun and has not come to its end.
    pub fn is_open(folder: &Path, destination: &Path, oid: &Oid) -> bool {
        let text = fs::read_to_string(Self::file(folder, destination)).unwrap_or_default();
        Left::of(&text, oid).is_some()
    }

    /// The same of copies ([`Self::open_beside_others`]).
    pub fn is_one_open(folder: &Path, destination: &Path, oid: &Oid) -> bool {
        (0..AT_ONCE).any(|number| {
            let text = fs::read_to_string(Self::slot(folder, destination, number)).unwrap_or_default();
            Left::of(&text, oid).is_some()
        })
    }

    /// The record with this number for copies to one destination.
    fn slot(folder: &Path, destination: &Path, number: usize) -> PathBuf {
        let first = Self::file(folder, destination);
        if number == 0 { first } else { first.with_extension(format!("{number}.jsonl")) }
    }

    fn file(folder: &Path, destination: &Path) -> PathBuf {
        let name = hex(&Oid::of(destination.as_os_str().as_bytes()).digest()[..16]);
        folder.join(format!("{name}.jsonl"))
    }

    /// The temporary that was left.
    pub fn temp(&self) -> Option<&str> {
        self.temp.as_deref()
    }

    /// Notes the temporary's name.
    pub fn set_temp(&self, name: &str) -> io::Result<()> {
        self.append(&format!("{}\n", json!({ "temp": name })))
    }

    /// The temporary that an earlier run left of one file of a tree. It is given once: of files
    /// with the same content only one can go on with it.
    pub fn take_part(&self, oid: &Oid) -> Option<String> {
        let name = lock(&self.parts).remove(oid)?;
        // It stays on record until it is placed: this run may be interrupted, too.
        lock(&self.small).waiting.insert(name.clone(), *oid);
        Some(name)
    }

    /// True if an earlier run left a temporary of this file.
    pub fn has_part(&self, oid: &Oid) -> bool {
        lock(&self.parts).contains_key(oid)
    }

    /// Names of the temporaries that an earlier run left.
    pub fn parts(&self) -> HashSet<String> {
        lock(&self.parts).values().cloned().collect()
    }

    /// Notes the temporary of one large file of a tree.
    pub fn set_part(&self, oid: &Oid, name: &str) -> io::Result<()> {
        self.append(&part_line(oid, name))
    }

    /// Notes the temporary of one small file of a tree, until [`Self::small_are_placed`].
    pub fn set_small_part(&self, oid: &Oid, name: &str) -> io::Result<()> {
        let mut small = lock(&self.small);
        small.waiting.insert(name.to_owned(), *oid);
        let file = match &mut small.file {
            Some(file) => file,
            none => none.insert(
                fs::OpenOptions::new().create(true).append(true).mode(0o600).open(self.beside(SMALL))?,
            ),
        };
        file.write_all(part_line(oid, name).as_bytes())
    }

    /// These small files have their names. All others stay on record: what came while the disk was
    /// syncing, and what an earlier run left and nobody has taken yet.
    pub fn small_are_placed<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> io::Result<()> {
        let mut small = lock(&self.small);
        for name in names {
            small.waiting.remove(name);
        }
        let left = lock(&self.parts).iter().map(|(oid, name)| part_line(oid, name)).collect::<String>();
        let waiting = small.waiting.iter().map(|(name, oid)| part_line(oid, name)).collect::<String>();
        // Under another name first, so that a kill at any moment finds one of the two whole.
        let (new, file) = (self.beside("small.new"), self.beside(SMALL));
        let mut options = fs::OpenOptions::new();
        let mut written = options.create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        written.write_all((left + &waiting).as_bytes())?;
        fs::rename(new, &file)?;
        small.file = Some(fs::OpenOptions::new().append(true).open(file)?);
        Ok(())
    }

    /// A path beside the record for a temporary of the service's own.
    pub fn beside(&self, extension: &str) -> PathBuf {
        self.file.with_extension(extension)
    }

    /// The transfer is complete.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.beside(SMALL));
        let _ = fs::remove_file(&self.file);
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600).open(&self.file)?.write_all(line.as_bytes())
    }
}

fn part_line(oid: &Oid, name: &str) -> String {
    format!("{}\n", json!({ "part": oid.to_string(), "temp": name }))
}

/// A file that nobody else holds, made if it is not there; `None` if somebody does.
fn held(path: &Path) -> io::Result<Option<fs::File>> {
    let mut options = fs::OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // The one that held it until now may have removed it.
    let is_the_same =
        path.metadata().is_ok_and(|found| found.ino() == file.metadata().map_or(0, |own| own.ino()));
    Ok(is_the_same.then_some(file))
}

/// Opens what an interrupted get left; blocks a moment if that is just ending. One that goes on is
/// an error.
pub fn wait_while_busy<T>(mut open: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    let start = Instant::now();
    loop {
        match open() {
            Err(FileError::Busy { .. }) if start.elapsed() < LETTING_GO => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_for_the_same_object_and_destination_only() {
        let dir = tempfile::tempdir().unwrap();
        let (oid, other) = (Oid::of(b"a"), Oid::of(b"b"));
        let record = Record::open(dir.path(), Path::new("/d"), &oid).unwrap();
        record.set_temp(".d.tow-1").unwrap();
        record.set_part(&other, "big").unwrap();
        let again = Record::open(dir.path(), Path::new("/d"), &oid).unwrap();
        assert_eq!(again.temp(), Some(".d.tow-1"));
        assert_eq!(again.parts(), HashSet::from(["big".to_owned()]));
        assert_eq!(again.take_part(&other).as_deref(), Some("big"));
        assert_eq!(again.take_part(&other), None, "given once");
        assert!(Record::is_open(dir.path(), Path::new("/d"), &oid));
        assert!(!Record::is_open(dir.path(), Path::new("/d"), &other));
        assert!(!Record::is_open(dir.path(), Path::new("/e"), &oid));
        assert_eq!(Record::open(dir.path(), Path::new("/e"), &oid).unwrap().temp(), None);
        assert_eq!(Record::open(dir.path(), Path::new("/d"), &other).unwrap().temp(), None);
        assert_eq!(Record::open(dir.path(), Path::new("/d"), &oid).unwrap().temp(), None, "replaced");
    }

    #[test]
    fn copies_to_one_destination_have_a_record_each() {
        let dir = tempfile::tempdir().unwrap();
        let (oid, other) = (Oid::of(b"into"), Oid::of(b"as"));
        let open = |oid: &Oid| Record::open_beside_others(dir.path(), Path::new("/d"), oid).unwrap();
        let first = open(&oid);
        first.set_temp("first").unwrap();
        let second = open(&oid);
        assert_eq!(second.temp(), None, "the first is in use");
        second.set_temp("second").unwrap();
        let third = open(&other);
        assert!(Record::is_one_open(dir.path(), Path::new("/d"), &other));
        third.remove();
        assert!(!Record::is_one_open(dir.path(), Path::new("/d"), &other));
        first.remove();
        drop((first, third));
        // The second was interrupted.
        drop(second);
        let again = open(&oid);
        assert_eq!(again.temp(), Some("second"));
        again.remove();
        drop(again);
        assert_eq!(open(&oid).temp(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // This record's copy was interrupted, and so were very many.
        for number in 0..100u8 {
            open(&Oid::of(&[number])).set_temp("t").unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), AT_ONCE);
        assert_eq!(open(&Oid::of(&[99])).temp(), Some("t"));
    }

    #[test]
    fn small_files_are_on_record_until_they_are_placed() {
        let dir = tempfile::tempdir().unwrap();
        let [oid, one, two, three] = [b"a", b"b", b"c", b"d"].map(|bytes| Oid::of(bytes));
        let open = || Record::open(dir.path(), Path::new("/d"), &oid).unwrap();
        let record = open();
        record.set_small_part(&one, "1").unwrap();
        record.set_small_part(&two, "2").unwrap();
        let again = open();
        assert_eq!(again.take_part(&one).as_deref(), Some("1"));
        again.set_small_part(&one, "1").unwrap();
        again.set_small_part(&three, "3").unwrap();
        again.small_are_placed(["1"]).unwrap();
        let left = HashSet::from(["2", "3"].map(String::from));
        assert_eq!(open().parts(), left, "2 was not taken, and 3 came while 1 was being placed");
        again.set_small_part(&one, "4").unwrap();
        assert_eq!(open().take_part(&one).as_deref(), Some("4"), "noted after the others were placed");
        open().remove();
        assert!(open().parts().is_empty());
    }

    /// It was forgotten as soon as another small file was placed.
    #[test]
    fn a_small_file_that_was_taken_up_is_on_record_until_it_is_placed() {
        let dir = tempfile::tempdir().unwrap();
        let [oid, one, two] = [b"a", b"b", b"c"].map(|bytes| Oid::of(bytes));
        let open = || Record::open(dir.path(), Path::new("/d"), &oid).unwrap();
        open().set_small_part(&one, "1").unwrap();
        let again = open();
        assert_eq!(again.take_part(&one).as_deref(), Some("1"));
        again.set_small_part(&two, "2").unwrap();
        again.small_are_placed(["2"]).unwrap();
        assert_eq!(open().take_part(&one).as_deref(), Some("1"), "this run was interrupted, too");
    }

    #[test]
    fn a_line_cut_off_by_a_crash_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let oid = Oid::of(b"a");
        let record = Record::open(dir.path(), Path::new("/d"), &oid).unwrap();
        record.set_temp("t").unwrap();
        let mut text = fs::read(&record.file).unwrap();
        text.extend_from_slice(b"{\"part\": \"bla");
        fs::write(&record.file, text).unwrap();
        assert_eq!(Record::open(dir.path(), Path::new("/d"), &oid).unwrap().temp(), Some("t"));
    }
}
