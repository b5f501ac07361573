//! What an interrupted transfer left, and where: a record per destination in the state folder.
//!
//! The record says which object was on its way to which destination and what its temporaries are
//! called. It is written before the first byte and removed after the last sync, and it is trusted
//! for nothing: whatever lies in a temporary is hashed again before it counts.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use towpath_content::node_id::hex;
use towpath_content::Oid;

/// The record of one destination, open for appending.
pub struct Record {
    file: PathBuf,
    /// The temporary (of a file) or the staging folder (of a tree).
    temp: Option<String>,
    /// Temporaries of large files in a tree's staging folder, by object.
    parts: Mutex<HashMap<Oid, String>>,
}

impl Record {
    /// The record for bringing `oid` to `destination`: what an interrupted transfer of the very
    /// same left, or an empty one.
    pub fn open(folder: &Path, destination: &Path, oid: &Oid) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let name = hex(&Oid::of(destination.as_os_str().as_bytes()).digest()[..16]);
        let file = folder.join(format!("{name}.jsonl"));
        let (mut temp, mut parts) = (None, HashMap::new());
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let text_of = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
        let is_same = lines.first().and_then(|line| text_of(line, "oid")) == Some(oid.to_string());
        for line in lines.iter().filter(|_| is_same) {
            match (text_of(line, "part").and_then(|part| part.parse().ok()), text_of(line, "temp")) {
                (Some(part), Some(name)) => drop(parts.insert(part, name)),
                (None, Some(name)) => temp = Some(name),
                _ => {}
            }
        }
        let record = Self { file, temp, parts: Mutex::new(parts) };
        if !is_same {
            record.write(true, &json!({ "oid": oid.to_string(), "destination": destination.to_string_lossy() }))?;
        }
        Ok(record)
    }

    /// The temporary that was left.
    pub fn temp(&self) -> Option<&str> {
        self.temp.as_deref()
    }

    /// Notes the temporary's name.
    pub fn set_temp(&self, name: &str) -> io::Result<()> {
        self.write(false, &json!({ "temp": name }))
    }

    /// The temporary of one large file of a tree.
    pub fn part(&self, oid: &Oid) -> Option<String> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).get(oid).cloned()
    }

    /// Whether `name` is the temporary of a large file.
    pub fn has_part(&self, name: &str) -> bool {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).values().any(|part| part == name)
    }

    /// Notes the temporary of one large file of a tree.
    pub fn set_part(&self, oid: &Oid, name: &str) -> io::Result<()> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(*oid, name.to_owned());
        self.write(false, &json!({ "part": oid.to_string(), "temp": name }))
    }

    /// A path beside the record for a temporary of the service's own.
    pub fn beside(&self, extension: &str) -> PathBuf {
        self.file.with_extension(extension)
    }

    /// The transfer is complete.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.file);
    }

    fn write(&self, anew: bool, line: &Value) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.create(true).mode(0o600);
        if anew { options.write(true).truncate(true) } else { options.append(true) };
        options.open(&self.file)?.write_all(format!("{line}\n").as_bytes())
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
        assert_eq!(again.part(&other).as_deref(), Some("big"));
        assert!(again.has_part("big") && !again.has_part("small"));
        assert_eq!(Record::open(dir.path(), Path::new("/e"), &oid).unwrap().temp(), None);
        assert_eq!(Record::open(dir.path(), Path::new("/d"), &other).unwrap().temp(), None);
        assert_eq!(Record::open(dir.path(), Path::new("/d"), &oid).unwrap().temp(), None, "replaced");
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
