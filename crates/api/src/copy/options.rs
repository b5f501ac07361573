//! Options of `tow cp` and `tow sync`, as both sides of a copy know them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::messages::SearchEffort;
use crate::metadata::Preserve;
use crate::names;

/// One copy, as the command line or another front end asks for it. What is not known of it is refused: it may be
/// what keeps a copy from doing harm.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRequest {
    /// Program whose habits decide where things go.
    pub mode: Mode,
    /// Sources: local paths, or `[user@]host:path`. Of a daemon, local paths have to be absolute.
    #[serde(with = "names::words")]
    pub sources: Vec<OsString>,
    /// Destination; written as the sources are.
    #[serde(with = "names::word")]
    pub destination: OsString,
    /// The command that reaches the other machine instead of `ssh` (`-e`).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "names::word_option")]
    pub rsh: Option<OsString>,
    /// Name of the program there (`--tow-path`).
    #[serde(default = "tow", with = "names::word")]
    pub tow_path: OsString,
    /// The other side, if the caller started it already: what ssh's standard input and output are connected to. A
    /// daemon needs it, as it may start no programs.
    #[serde(skip)]
    pub reached: Option<OwnedFd>,
    /// Links of this machine to go out by, all at once, as interfaces or addresses (`--bind`); none: as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bind: Vec<String>,
    /// Mode bits that new files do not get, if not those of the process that makes the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// The rest, as both sides know it.
    #[serde(default, serialize_with = "unusual")]
    pub options: CopyOptions,
}

fn tow() -> OsString {
    "tow".into()
}

/// Writes what is not as it is by default: an older daemon takes what it knows.
fn unusual<S: serde::Serializer>(options: &CopyOptions, serializer: S) -> Result<S::Ok, S::Error> {
    let value = |options: &CopyOptions| serde_json::to_value(options).map_err(serde::ser::Error::custom);
    let mut said = value(options)?;
    leave_out(&mut said, &value(&CopyOptions::default())?);
    said.serialize(serializer)
}

/// Removes the fields that are as in `usual`.
fn leave_out(said: &mut Value, usual: &Value) {
    if let (Value::Object(fields), Value::Object(usual)) = (said, usual) {
        fields.retain(|name, value| usual.get(name) != Some(value));
        fields.iter_mut().for_each(|(name, value)| leave_out(value, &usual[name]));
    }
}

/// Program whose habits a copy follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Those of `cp` and `scp`: an existing directory takes the source under its own name.
    Cp,
    /// Those of `rsync`: a slash at the end of a source means what is in it.
    Sync,
}

/// Everything that decides what a copy does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyOptions {
    /// Metadata that is carried over, and what is left out.
    pub preserve: Preserve,
    /// Directories are entered (`-r`). Without it they are skipped and named, except that one which
    /// `files_from` names is made, empty.
    pub recursive: bool,
    /// Symbolic links are followed at the source (`-L`).
    pub copy_links: bool,
    /// Symbolic links that lead out of the tree are left out (`--safe-links`).
    pub safe_links: bool,
    /// The scan stays on the file system of the source (`-x`).
    pub one_file_system: bool,
    /// Nothing is changed (`-n`).
    pub dry_run: bool,
    /// Check whether a file's content is the same.
    pub check: Check,
    /// Files that are newer at the destination are left alone (`-u`).
    pub update: bool,
    /// Nothing new is made (`--existing`).
    pub existing: bool,
    /// Leaves alone what is there (`--ignore-existing`).
    pub ignore_existing: bool,
    /// Does not use what the destination has in the way of a file as a source of its bytes (`-W`).
    pub whole_file: bool,
    /// Nothing of this machine's disk is searched for what is to come (`--no-search`).
    pub no_search: bool,
    /// Directories that are searched too, whatever file system they are on (`--search`), as the
    /// receiving side knows them.
    #[serde(with = "names::list")]
    pub search: Vec<Vec<u8>>,
    /// Effort of the search where probably nothing is found (`--search-effort`).
    pub search_effort: SearchEffort,
    /// Runs of zeros become holes (`-S`), besides the holes that the source has.
    pub sparse: bool,
    /// Data are compressed on the network (`-z`).
    pub compress: bool,
    /// Removes what the source does not have (`--delete`).
    pub delete: bool,
    /// So is what the filters leave out (`--delete-excluded`).
    pub delete_excluded: bool,
    /// At most so many are removed (`--max-delete`).
    pub max_delete: Option<u64>,
    /// More than half of a destination may be removed, and directories that are in the way
    /// (`--force`).
    pub force: bool,
    /// Filter rules in their order, one a line as `towpath_files::filter` writes them.
    #[serde(with = "names::list")]
    pub filters: Vec<Vec<u8>>,
    /// Only these, below the source (`--files-from`).
    #[serde(with = "names::list_option")]
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Keeps what would be overwritten or removed (`--backup`).
    pub backup: bool,
    /// Suffix appended to its name (`--suffix`); the command line sets rsync's default: `~`, or
    /// nothing with a backup directory.
    #[serde(with = "names::name")]
    pub suffix: Vec<u8>,
    /// Directory that it is moved to, relative to the destination (`--backup-dir`).
    #[serde(with = "names::option")]
    pub backup_dir: Option<Vec<u8>>,
    /// Changes of modes on the way (`--chmod`), as `towpath_files::chmod` parses it.
    pub chmod: Vec<String>,
    /// The owner everything gets (`--chown USER:GROUP`).
    pub chown: Option<String>,
    /// Smaller files are left out (`--min-size`), in bytes.
    pub min_size: Option<u64>,
    /// Larger files are left out (`--max-size`), in bytes.
    pub max_size: Option<u64>,
    /// Bytes per second over the network, 0 for no limit (`--bwlimit`).
    pub limit_rate: u64,
    /// Seconds without progress after which a copy is given up (`--timeout`), 0 for the default.
    pub timeout: u64,
    /// Files are removed at the source once they are in place (`--remove-source-files`).
    pub remove_source_files: bool,
    /// Transport of data when the other side is remote.
    pub via: Via,
    /// Entries that stay as they are become items too (`-ii`).
    pub report_unchanged: bool,
    /// Nobody looks at items and deletions: they need not be reported.
    pub without_items: bool,
}

/// Check whether a file's content is the same at both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Size and time of last modification (rsync's quick check).
    #[default]
    Quick,
    /// Size alone (`--size-only`).
    SizeOnly,
    /// It never is (`-I`, `--ignore-times`).
    Never,
    /// Content (`-c`, `--checksum`; always so for `tow cp`).
    Content,
}

/// Transport of data to and from a remote side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Over ssh until a TLS connection stands, then over that.
    #[default]
    Both,
    /// Over ssh alone.
    Ssh,
    /// Over TLS alone.
    Tls,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            preserve: Preserve::default(),
            recursive: true,
            copy_links: false,
            safe_links: false,
            one_file_system: false,
            dry_run: false,
            check: Check::Quick,
            update: false,
            existing: false,
            ignore_existing: false,
            whole_file: false,
            no_search: false,
            search: Vec::new(),
            search_effort: SearchEffort::Some,
            sparse: false,
            compress: false,
            delete: false,
            delete_excluded: false,
            max_delete: None,
            force: false,
            filters: Vec::new(),
            files_from: None,
            backup: false,
            suffix: Vec::new(),
            backup_dir: None,
            chmod: Vec::new(),
            chown: None,
            min_size: None,
            max_size: None,
            limit_rate: 0,
            timeout: 0,
            remove_source_files: false,
            via: Via::Both,
            report_unchanged: false,
            without_items: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn request(options: CopyOptions) -> CopyRequest {
        CopyRequest {
            mode: Mode::Sync,
            sources: vec!["/a/".into(), OsString::from_vec(b"/\xff".to_vec())],
            destination: "ann@host:".into(),
            rsh: None,
            tow_path: tow(),
            reached: None,
            bind: Vec::new(),
            umask: Some(0o77),
            options,
        }
    }

    #[test]
    fn a_request_says_what_is_unusual_and_comes_back_as_it_was() {
        let plain = serde_json::to_string(&request(CopyOptions::default())).unwrap();
        let start =
            r#"{"mode":"sync","sources":["/a/",[47,255]],"destination":"ann@host:","tow_path":"tow","#;
        assert_eq!(plain, format!(r#"{start}"umask":63,"options":{{}}}}"#));
        let options = CopyOptions {
            preserve: Preserve { owner: false, ..Preserve::default() },
            check: Check::SizeOnly,
            via: Via::Tls,
            filters: vec![b"- *.o".to_vec(), b"\xff".to_vec()],
            files_from: Some(vec![]),
            suffix: b"~".to_vec(),
            backup_dir: Some(b"old".to_vec()),
            max_delete: Some(0),
            ..CopyOptions::default()
        };
        let written = serde_json::to_string(&request(options.clone())).unwrap();
        assert!(written.contains(r#""preserve":{"owner":false}"#), "{written}");
        let back: CopyRequest = serde_json::from_str(&written).unwrap();
        assert_eq!((back.options, back.umask), (options, Some(0o77)));
        assert_eq!(back.sources, request(CopyOptions::default()).sources);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let with = |more: &str| format!(r#"{{"mode":"cp","sources":["/a"],"destination":"/b"{more}}}"#);
        assert!(serde_json::from_str::<CopyRequest>(&with("")).is_ok());
        for more in [
            r#","dry_run":true"#,
            r#","options":{"dry":true}"#,
            r#","options":{"preserve":{"x":true}}"#,
            r#","options":{"check":"never mind"}"#,
            r#","reached":3"#,
        ] {
            assert!(serde_json::from_str::<CopyRequest>(&with(more)).is_err(), "{more}");
        }
    }
}
