//! The options of a copy as they are written (`docs/formats/copy.md`, "Options"): what is not set is not requested,
//! and of alternatives one is set.

use bytes::Bytes;
use prost::{Message as _, Oneof};
use towpath_api::SearchEffort;
use towpath_api::copy::{Check, CopyOptions, Preserve, Via};

use towpath_protocol::counting::has_at_most;

use super::violation;
use crate::error::CopyError;

/// Names and rules that may come, by the numbers of their fields: an empty one takes sixteen times its bytes once it
/// is read.
const MOST: [(&[u32], usize); 4] = [(&[5], 1_000_000), (&[6, 1], 4_000_000), (&[16, 1], 1000), (&[20], 1000)];

/// [`CopyOptions`] without what only the other side needs to know.
#[derive(Clone, PartialEq, prost::Message)]
struct WrittenOptions {
    #[prost(bool, tag = "1")]
    recursive: bool,
    #[prost(bool, tag = "2")]
    copy_links: bool,
    #[prost(bool, tag = "3")]
    safe_links: bool,
    #[prost(bool, tag = "4")]
    one_file_system: bool,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    filters: Vec<Bytes>,
    #[prost(message, optional, tag = "6")]
    files_from: Option<WrittenNames>,
    #[prost(uint64, optional, tag = "7")]
    min_size: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    max_size: Option<u64>,
    #[prost(message, optional, tag = "9")]
    preserve: Option<WrittenPreserve>,
    #[prost(enumeration = "WrittenCheck", tag = "10")]
    check: i32,
    #[prost(bool, tag = "11")]
    update: bool,
    #[prost(bool, tag = "12")]
    existing: bool,
    #[prost(bool, tag = "13")]
    ignore_existing: bool,
    #[prost(oneof = "Reuse", tags = "14, 15, 16")]
    reuse: Option<Reuse>,
    #[prost(enumeration = "WrittenRemoval", tag = "17")]
    removal: i32,
    #[prost(uint64, optional, tag = "18")]
    max_delete: Option<u64>,
    #[prost(message, optional, tag = "19")]
    backup: Option<WrittenBackup>,
    #[prost(string, repeated, tag = "20")]
    chmod: Vec<String>,
    #[prost(string, optional, tag = "21")]
    chown: Option<String>,
    #[prost(bool, tag = "22")]
    force: bool,
    #[prost(bool, tag = "23")]
    sparse: bool,
    #[prost(bool, tag = "24")]
    dry_run: bool,
    #[prost(bool, tag = "25")]
    remove_source_files: bool,
    #[prost(enumeration = "WrittenVia", tag = "26")]
    via: i32,
    #[prost(bool, tag = "27")]
    compress: bool,
    #[prost(uint64, tag = "28")]
    limit_rate: u64,
    #[prost(uint64, tag = "29")]
    timeout: u64,
    #[prost(enumeration = "WrittenItems", tag = "30")]
    items: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenNames {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    names: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenPreserve {
    #[prost(bool, tag = "1")]
    links: bool,
    #[prost(bool, tag = "2")]
    perms: bool,
    #[prost(bool, tag = "3")]
    special_bits: bool,
    #[prost(bool, tag = "4")]
    times: bool,
    #[prost(bool, tag = "5")]
    owner: bool,
    #[prost(bool, tag = "6")]
    group: bool,
    #[prost(bool, tag = "7")]
    numeric_ids: bool,
    #[prost(bool, tag = "8")]
    devices: bool,
    #[prost(bool, tag = "9")]
    specials: bool,
    #[prost(bool, tag = "10")]
    hard_links: bool,
    #[prost(bool, tag = "11")]
    acls: bool,
    #[prost(bool, tag = "12")]
    xattrs: bool,
    #[prost(bool, tag = "13")]
    privileged_xattrs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum WrittenCheck {
    Quick = 0,
    SizeOnly = 1,
    Never = 2,
    Content = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum WrittenVia {
    Both = 0,
    Ssh = 1,
    Tls = 2,
}

/// Reuse of what the destination's machine has as a source of bytes; nothing if it is not set.
#[derive(Clone, PartialEq, Oneof)]
enum Reuse {
    #[prost(message, tag = "14")]
    Nothing(super::Empty),
    #[prost(message, tag = "15")]
    InPlace(super::Empty),
    #[prost(message, tag = "16")]
    Searched(SearchedPlaces),
}

#[derive(Clone, PartialEq, prost::Message)]
struct SearchedPlaces {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    directories: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    is_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum WrittenRemoval {
    None = 0,
    Extra = 1,
    ExtraAndExcluded = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WrittenBackup {
    #[prost(bytes = "bytes", tag = "1")]
    suffix: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    directory: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum WrittenItems {
    None = 0,
    Changed = 1,
    All = 2,
}

/// The bytes of options.
pub fn encode(options: &CopyOptions) -> Bytes {
    WrittenOptions::from(options).encode_to_vec().into()
}

/// Reads options. Refused: alternatives and fields that this program does not know, and too many names.
pub fn decode(bytes: Bytes) -> Result<CopyOptions, CopyError> {
    if MOST.iter().any(|(path, most)| !has_at_most(&bytes, path, *most)) {
        return Err(violation("options with too many names"));
    }
    let unread = || violation("options that can't be read");
    let written = WrittenOptions::decode(bytes.clone()).map_err(|_| unread())?;
    // An option that is not known would be passed over, and what was requested not done.
    if written.encoded_len() != bytes.len() {
        return Err(violation("an option that this program does not know"));
    }
    written.try_into().map_err(|_| unread())
}

fn written(names: &[Vec<u8>]) -> Vec<Bytes> {
    names.iter().map(|name| Bytes::copy_from_slice(name)).collect()
}

fn read(names: Vec<Bytes>) -> Vec<Vec<u8>> {
    names.into_iter().map(Into::into).collect()
}

impl From<&CopyOptions> for WrittenOptions {
    fn from(options: &CopyOptions) -> Self {
        Self {
            recursive: options.recursive,
            copy_links: options.copy_links,
            safe_links: options.safe_links,
            one_file_system: options.one_file_system,
            filters: written(&options.filters),
            files_from: options.files_from.as_ref().map(|names| WrittenNames { names: written(names) }),
            min_size: options.min_size,
            max_size: options.max_size,
            preserve: Some(options.preserve.into()),
            check: WrittenCheck::from(options.check).into(),
            update: options.update,
            existing: options.existing,
            ignore_existing: options.ignore_existing,
            reuse: Some(Reuse::of(options)),
            removal: WrittenRemoval::of(options).into(),
            max_delete: options.max_delete,
            backup: options.backup.then(|| WrittenBackup {
                suffix: Bytes::copy_from_slice(&options.suffix),
                directory: options.backup_dir.as_deref().map(Bytes::copy_from_slice),
            }),
            chmod: options.chmod.clone(),
            chown: options.chown.clone(),
            force: options.force,
            sparse: options.sparse,
            dry_run: options.dry_run,
            remove_source_files: options.remove_source_files,
            via: WrittenVia::from(options.via).into(),
            compress: options.compress,
            limit_rate: options.limit_rate,
            timeout: options.timeout,
            items: WrittenItems::of(options).into(),
        }
    }
}

impl TryFrom<WrittenOptions> for CopyOptions {
    type Error = prost::UnknownEnumValue;

    fn try_from(written: WrittenOptions) -> Result<Self, Self::Error> {
        let removal = WrittenRemoval::try_from(written.removal)?;
        let items = WrittenItems::try_from(written.items)?;
        let reuse = written.reuse.unwrap_or(Reuse::Nothing(super::Empty {}));
        let (backup, suffix, backup_dir) = match written.backup {
            Some(kept) => (true, kept.suffix.into(), kept.directory.map(Into::into)),
            None => (false, Vec::new(), None),
        };
        let (whole_file, no_search) =
            (matches!(reuse, Reuse::Nothing(_)), matches!(reuse, Reuse::InPlace(_)));
        let (search, is_all) = match reuse {
            Reuse::Searched(searched) => (read(searched.directories), searched.is_all),
            Reuse::Nothing(_) | Reuse::InPlace(_) => (Vec::new(), false),
        };
        Ok(Self {
            preserve: written.preserve.unwrap_or_default().into(),
            recursive: written.recursive,
            copy_links: written.copy_links,
            safe_links: written.safe_links,
            one_file_system: written.one_file_system,
            dry_run: written.dry_run,
            check: WrittenCheck::try_from(written.check)?.into(),
            update: written.update,
            existing: written.existing,
            ignore_existing: written.ignore_existing,
            whole_file,
            no_search,
            search,
            search_effort: if is_all { SearchEffort::All } else { SearchEffort::Some },
            sparse: written.sparse,
            compress: written.compress,
            delete: removal != WrittenRemoval::None,
            delete_excluded: removal == WrittenRemoval::ExtraAndExcluded,
            max_delete: written.max_delete,
            force: written.force,
            filters: read(written.filters),
            files_from: written.files_from.map(|from| read(from.names)),
            backup,
            suffix,
            backup_dir,
            chmod: written.chmod,
            chown: written.chown,
            min_size: written.min_size,
            max_size: written.max_size,
            limit_rate: written.limit_rate,
            timeout: written.timeout,
            remove_source_files: written.remove_source_files,
            via: WrittenVia::try_from(written.via)?.into(),
            report_unchanged: items == WrittenItems::All,
            without_items: items == WrittenItems::None,
        })
    }
}

impl Reuse {
    fn of(options: &CopyOptions) -> Self {
        match (options.whole_file, options.no_search) {
            (true, _) => Self::Nothing(super::Empty {}),
            (false, true) => Self::InPlace(super::Empty {}),
            (false, false) => Self::Searched(SearchedPlaces {
                directories: written(&options.search),
                is_all: options.search_effort == SearchEffort::All,
            }),
        }
    }
}

impl WrittenRemoval {
    const fn of(options: &CopyOptions) -> Self {
        match (options.delete, options.delete_excluded) {
            (false, _) => Self::None,
            (true, false) => Self::Extra,
            (true, true) => Self::ExtraAndExcluded,
        }
    }
}

impl WrittenItems {
    const fn of(options: &CopyOptions) -> Self {
        match (options.without_items, options.report_unchanged) {
            (true, _) => Self::None,
            (false, false) => Self::Changed,
            (false, true) => Self::All,
        }
    }
}

same!(WrittenCheck, Check: Quick, SizeOnly, Never, Content);
same!(WrittenVia, Via: Both, Ssh, Tls);

same_fields!(
    WrittenPreserve, Preserve: links, perms, special_bits, times, owner, group, numeric_ids, devices, specials,
    hard_links, acls, xattrs, privileged_xattrs
);

#[cfg(test)]
mod tests {
    use super::*;

    fn back(options: &CopyOptions) -> CopyOptions {
        decode(encode(options)).unwrap()
    }

    #[test]
    fn options_come_back() {
        assert_eq!(back(&CopyOptions::default()), CopyOptions::default());
        let names = vec![b"a/b".to_vec(), b"\xff".to_vec(), Vec::new()];
        let options = CopyOptions {
            preserve: Preserve { owner: false, xattrs: false, ..Preserve::default() },
            check: Check::Content,
            via: Via::Tls,
            search: names.clone(),
            search_effort: SearchEffort::All,
            filters: names.clone(),
            files_from: Some(names),
            delete: true,
            delete_excluded: true,
            max_delete: Some(0),
            backup: true,
            suffix: b"~".to_vec(),
            backup_dir: Some(b"old".to_vec()),
            chmod: vec!["go-w".into()],
            chown: Some(":www".into()),
            min_size: Some(0),
            max_size: Some(u64::MAX),
            report_unchanged: true,
            ..CopyOptions::default()
        };
        assert_eq!(back(&options), options);
    }

    #[test]
    fn of_alternatives_one_is_said() {
        let plain = CopyOptions::default();
        let whole = CopyOptions { whole_file: true, ..plain.clone() };
        assert_eq!(
            back(&CopyOptions { no_search: true, search: vec![b"x".to_vec()], ..whole.clone() }),
            whole
        );
        let untold = CopyOptions { without_items: true, ..plain.clone() };
        assert_eq!(back(&CopyOptions { report_unchanged: true, ..untold.clone() }), untold);
        assert_eq!(back(&CopyOptions { delete_excluded: true, ..plain.clone() }), plain);
        assert_eq!(back(&CopyOptions { suffix: b"~".to_vec(), ..plain.clone() }), plain);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let with = |more: &[u8]| [&encode(&CopyOptions::default())[..], more].concat();
        for more in
            [&b"\xf8\x01\x01"[..], b"\x50\x09", b"\x88\x01\x03", b"\xd0\x01\x03", b"\xf0\x01\x03", b"\xff"]
        {
            assert!(decode(with(more).into()).is_err(), "{more:?}");
        }
        let many = with(&b"\x2a\x00".repeat(1_000_001));
        assert!(decode(many.into()).is_err());
    }
}
