//! The facts of an error that ends a copy, as one side sends them to the other (`docs/formats/copy.md`). No words for
//! people: whoever has the person makes them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Enumeration;
use towpath_files::FileError;
use towpath_files::filter::FilterSide;
use towpath_link::tcp::BindError;
use towpath_ssh::SshError;
use towpath_store::StoreError;

use crate::error::{CopyError, DestinationFault, RequestFault, chain};

/// Bytes of a text. The end of a longer one is not sent.
const MOST_TEXT: usize = 4 << 10;
/// Bytes of a path. The front of a longer one is not sent.
const MOST_PATH: usize = 8 << 10;

/// An error that ends the copy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Fatal {
    /// Number of what happened.
    #[prost(enumeration = "FatalKind", tag = "2")]
    kind: i32,
    /// To what.
    #[prost(bytes = "bytes", tag = "3")]
    path: Bytes,
    /// Path of it, if that is another one.
    #[prost(bytes = "bytes", tag = "4")]
    place: Bytes,
    /// Class among several, by its kind.
    #[prost(uint32, tag = "5")]
    class: u32,
    /// The system's number of the error, as Linux has it; 0 if it has none.
    #[prost(uint32, tag = "6")]
    number: u32,
    /// Attempted step.
    #[prost(string, tag = "7")]
    doing: String,
    /// Further details.
    #[prost(string, tag = "8")]
    detail: String,
    /// Addresses that were dialled, or listened on.
    #[prost(string, repeated, tag = "9")]
    addresses: Vec<String>,
    /// Seconds that it took.
    #[prost(uint64, tag = "10")]
    seconds: u64,
}

/// Kinds of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum FatalKind {
    Unsaid = 0,
    GivenUp = 1,
    HungUp = 2,
    Violation = 3,
    Internal = 4,
    NotConfined = 5,
    Cancelled = 6,
    Stalled = 7,
    Unasked = 8,
    Source = 9,
    Opening = 10,
    Destination = 11,
    System = 12,
    Full = 13,
    Index = 14,
    Unfit = 15,
    SeveralContents = 16,
    SameName = 17,
    NoName = 18,
    TooManyOptions = 19,
    Filter = 20,
    Chmod = 21,
    Chown = 22,
    TooManyPaths = 23,
    NothingMatches = 24,
    NotListening = 25,
    NoConnection = 26,
}

/// Faults of a destination, in the order of their classes, which begin at 1.
const UNFIT: [DestinationFault; 6] = [
    DestinationFault::NotADirectory,
    DestinationFault::Missing,
    DestinationFault::Fifo,
    DestinationFault::Socket,
    DestinationFault::Device,
    DestinationFault::DeadLink,
];

impl Fatal {
    /// The facts of an error.
    pub fn of(error: &CopyError) -> Self {
        let (kind, said) = match error {
            CopyError::GivenUp => (FatalKind::GivenUp, Self::default()),
            CopyError::HungUp => (FatalKind::HungUp, Self::default()),
            CopyError::Violation { what } => (FatalKind::Violation, Self::detailed(what)),
            CopyError::Internal { what } => (FatalKind::Internal, Self::detailed(what)),
            CopyError::NotConfined { why } => (FatalKind::NotConfined, Self::detailed(why)),
            CopyError::Cancelled => (FatalKind::Cancelled, Self::default()),
            CopyError::Stalled { waited, trouble } => {
                let said = Self::detailed(trouble.as_deref().unwrap_or_default());
                (FatalKind::Stalled, Self { seconds: waited.as_secs(), ..said })
            }
            CopyError::Unasked { name } => (FatalKind::Unasked, Self::at(name)),
            CopyError::Source(error) => (FatalKind::Source, Self::of_file(error)),
            CopyError::Opening(error) => (FatalKind::Opening, Self::of_file(error)),
            CopyError::Destination(error) => (FatalKind::Destination, Self::of_file(error)),
            CopyError::System { doing, path, source } => {
                (FatalKind::System, Self { doing: text(doing), ..Self::of_system(path, source) })
            }
            CopyError::Full { name, place } => {
                (FatalKind::Full, Self { place: path_end(place.as_os_str().as_bytes()), ..Self::at(name) })
            }
            CopyError::Index(error) => Self::of_store(error),
            CopyError::Unfit { path, fault } => {
                let class = UNFIT.iter().position(|one| one == fault).map_or(0, |at| at as u32 + 1);
                (FatalKind::Unfit, Self { class, ..Self::at(path.as_os_str().as_bytes()) })
            }
            CopyError::Request(fault) => Self::of_request(fault),
            CopyError::Ssh(error) => Self::of_ssh(error),
            CopyError::Elsewhere { error, .. } => return Self::of(error),
        };
        Self { kind: kind as i32, ..said }
    }

    fn of_request(fault: &RequestFault) -> (FatalKind, Self) {
        match fault {
            RequestFault::SeveralContents => (FatalKind::SeveralContents, Self::default()),
            RequestFault::SameName(name) => (FatalKind::SameName, Self::at(name)),
            RequestFault::NoName => (FatalKind::NoName, Self::default()),
            RequestFault::TooManyOptions => (FatalKind::TooManyOptions, Self::default()),
            RequestFault::Filter(side, why) => {
                let class = u32::from(*side == FilterSide::Receiver);
                (FatalKind::Filter, Self { class, ..Self::detailed(why) })
            }
            RequestFault::Chmod(why) => (FatalKind::Chmod, Self::detailed(why)),
            RequestFault::Chown(why) => (FatalKind::Chown, Self::detailed(why)),
            only_here => (FatalKind::Internal, Self::detailed(&only_here.to_string())),
        }
    }

    fn of_ssh(error: &SshError) -> (FatalKind, Self) {
        match error {
            SshError::TooManyPaths { pattern } => (FatalKind::TooManyPaths, Self::at(pattern)),
            SshError::NothingMatches { pattern } => (FatalKind::NothingMatches, Self::at(pattern)),
            SshError::NotListening { source: BindError::Io { address, source } } => {
                let addresses = vec![address.to_string()];
                (FatalKind::NotListening, Self { addresses, ..Self::of_system(Path::new(""), source) })
            }
            SshError::NoConnection { limit, tried, last } => {
                let last = last.as_ref().map(|last| chain(&**last)).unwrap_or_default();
                let addresses = tried.iter().map(ToString::to_string).collect();
                (
                    FatalKind::NoConnection,
                    Self { addresses, seconds: limit.as_secs(), ..Self::detailed(&last) },
                )
            }
            only_here => (FatalKind::Internal, Self::detailed(&chain(only_here))),
        }
    }

    fn of_store(error: &StoreError) -> (FatalKind, Self) {
        let (class, said) = match error {
            StoreError::NotHere => (1, Self::default()),
            StoreError::NotYet => (2, Self::default()),
            StoreError::SourceChanged { path } => (3, Self::at(path.as_os_str().as_bytes())),
            StoreError::Corrupt { what } => (4, Self::detailed(what)),
            StoreError::Io { what, source } => {
                (5, Self { doing: text(what), ..Self::of_system(Path::new(""), source) })
            }
            StoreError::Refused { .. } | StoreError::Bytes(_) => {
                return (FatalKind::Internal, Self::detailed(&error.to_string()));
            }
        };
        (FatalKind::Index, Self { class, ..said })
    }

    fn of_file(error: &FileError) -> Self {
        let (class, source) = match error {
            FileError::Exists { source, .. } => (1, source),
            FileError::NotADirectory { source, .. } => (2, source),
            FileError::OutsideTree { source, .. } => (3, source),
            FileError::NoSpace { source, .. } => (4, source),
            FileError::Vanished { source, .. } => (5, source),
            FileError::Permission { source, .. } => (6, source),
            FileError::Changed { source, .. } => (7, source),
            FileError::Busy { source, .. } => (8, source),
            FileError::TooDeep { source, .. } => (9, source),
            FileError::Unsupported { source, .. } => (10, source),
            FileError::Io { source, .. } => (11, source),
        };
        Self { class, doing: text(error.op()), ..Self::of_system(error.path(), source) }
    }

    fn of_system(path: &Path, source: &io::Error) -> Self {
        let said = Self::at(path.as_os_str().as_bytes());
        match source.raw_os_error().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Self { number, ..said },
            None => Self { detail: text(&source.to_string()), ..said },
        }
    }

    fn at(path: &[u8]) -> Self {
        Self { path: path_end(path), ..Self::default() }
    }

    fn detailed(detail: &str) -> Self {
        Self { detail: text(detail), ..Self::default() }
    }

    /// The error; none if these are the facts of none that is known here.
    pub fn error(&self) -> Option<CopyError> {
        let texts = [&self.doing, &self.detail].into_iter().chain(&self.addresses);
        let paths = [&self.path, &self.place];
        if texts.map(String::len).any(|len| len > MOST_TEXT)
            || paths.iter().any(|path| path.len() > MOST_PATH)
        {
            return None;
        }
        let detail = || self.detail.clone();
        Some(match FatalKind::try_from(self.kind).ok()? {
            FatalKind::GivenUp => CopyError::GivenUp,
            FatalKind::HungUp => CopyError::HungUp,
            FatalKind::Violation => CopyError::Violation { what: detail() },
            FatalKind::Internal => CopyError::Internal { what: detail() },
            FatalKind::NotConfined => CopyError::NotConfined { why: detail() },
            FatalKind::Cancelled => CopyError::Cancelled,
            FatalKind::Stalled => CopyError::Stalled {
                waited: Duration::from_secs(self.seconds),
                trouble: Some(detail()).filter(|trouble| !trouble.is_empty()),
            },
            FatalKind::Unasked => CopyError::Unasked { name: self.path.to_vec() },
            FatalKind::Source => CopyError::source(self.file()?),
            FatalKind::Opening => CopyError::opening(self.file()?),
            FatalKind::Destination => CopyError::destination(self.file()?),
            FatalKind::System => CopyError::System {
                doing: self.doing.clone().into(),
                path: path_of(&self.path),
                source: Arc::new(self.system()?),
            },
            FatalKind::Full => CopyError::Full { name: self.path.to_vec(), place: path_of(&self.place) },
            FatalKind::Index => self.store()?.into(),
            FatalKind::Unfit => {
                let fault = *UNFIT.get((self.class as usize).checked_sub(1)?)?;
                CopyError::Unfit { path: path_of(&self.path), fault }
            }
            kind => return self.request(kind).map(CopyError::from).or_else(|| Some(self.ssh(kind)?.into())),
        })
    }

    fn request(&self, kind: FatalKind) -> Option<RequestFault> {
        let detail = || self.detail.clone();
        Some(match kind {
            FatalKind::SeveralContents => RequestFault::SeveralContents,
            FatalKind::SameName => RequestFault::SameName(self.path.to_vec()),
            FatalKind::NoName => RequestFault::NoName,
            FatalKind::TooManyOptions => RequestFault::TooManyOptions,
            FatalKind::Filter => match self.class {
                0 => RequestFault::Filter(FilterSide::Sender, detail()),
                1 => RequestFault::Filter(FilterSide::Receiver, detail()),
                _ => return None,
            },
            FatalKind::Chmod => RequestFault::Chmod(detail()),
            FatalKind::Chown => RequestFault::Chown(detail()),
            _ => return None,
        })
    }

    fn ssh(&self, kind: FatalKind) -> Option<SshError> {
        let addresses = || self.addresses.iter().map(|address| address.parse().ok());
        Some(match kind {
            FatalKind::TooManyPaths => SshError::TooManyPaths { pattern: self.path.to_vec() },
            FatalKind::NothingMatches => SshError::NothingMatches { pattern: self.path.to_vec() },
            FatalKind::NotListening => {
                let (address, source) = (addresses().next()??, self.system()?);
                SshError::NotListening { source: BindError::Io { address, source } }
            }
            FatalKind::NoConnection => SshError::NoConnection {
                limit: Duration::from_secs(self.seconds),
                tried: addresses().collect::<Option<_>>()?,
                last: (!self.detail.is_empty()).then(|| Arc::from(Box::from(self.detail.as_str()))),
            },
            _ => return None,
        })
    }

    fn store(&self) -> Option<StoreError> {
        Some(match self.class {
            1 => StoreError::NotHere,
            2 => StoreError::NotYet,
            3 => StoreError::SourceChanged { path: path_of(&self.path) },
            4 => StoreError::Corrupt { what: self.detail.clone() },
            5 => StoreError::Io { what: self.doing.clone(), source: self.system()? },
            _ => return None,
        })
    }

    fn file(&self) -> Option<FileError> {
        let (op, path, source) = (self.doing.clone().into(), path_of(&self.path), self.system()?);
        Some(match self.class {
            1 => FileError::Exists { op, path, source },
            2 => FileError::NotADirectory { op, path, source },
            3 => FileError::OutsideTree { op, path, source },
            4 => FileError::NoSpace { op, path, source },
            5 => FileError::Vanished { op, path, source },
            6 => FileError::Permission { op, path, source },
            7 => FileError::Changed { op, path, source },
            8 => FileError::Busy { op, path, source },
            9 => FileError::TooDeep { op, path, source },
            10 => FileError::Unsupported { op, path, source },
            11 => FileError::Io { op, path, source },
            _ => return None,
        })
    }

    fn system(&self) -> Option<io::Error> {
        Some(match i32::try_from(self.number).ok()? {
            0 => io::Error::other(self.detail.clone()),
            number => io::Error::from_raw_os_error(number),
        })
    }
}

fn text(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_TEXT)].to_owned()
}

fn path_end(path: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&path[path.len().saturating_sub(MOST_PATH)..])
}

fn path_of(path: &[u8]) -> PathBuf {
    OsStr::from_bytes(path).into()
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// One of each kind that a remote end may meet.
    fn errors() -> Vec<CopyError> {
        let file = |errno| FileError::new("open", Path::new("/srv/a\n\u{ff}"), errno);
        let full = io::Error::from_raw_os_error(28);
        let address = "192.0.2.1:7000".parse().unwrap();
        let ssh = [
            SshError::TooManyPaths { pattern: b"*/*".to_vec() },
            SshError::NothingMatches { pattern: b"x*".to_vec() },
            BindError::Io { address, source: io::Error::other("odd") }.into(),
            SshError::NoConnection {
                limit: Duration::from_secs(30),
                tried: vec![address],
                last: Some(Arc::from(Box::from("refused"))),
            },
        ];
        let request = [
            RequestFault::SeveralContents,
            RequestFault::SameName(b"a\xff".to_vec()),
            RequestFault::NoName,
            RequestFault::TooManyOptions,
            RequestFault::Filter(FilterSide::Sender, "no rule".into()),
            RequestFault::Filter(FilterSide::Receiver, "no rule".into()),
            RequestFault::Chmod("no mode".into()),
            RequestFault::Chown("nobody".into()),
        ];
        let store = [
            StoreError::NotHere,
            StoreError::NotYet,
            StoreError::SourceChanged { path: "/srv/a".into() },
            StoreError::Corrupt { what: "a piece".into() },
            StoreError::Io { what: "write /home/.index".into(), source: full },
        ];
        let unfit = UNFIT.map(|fault| CopyError::Unfit { path: "/srv".into(), fault });
        let mut all = vec![
            CopyError::GivenUp,
            CopyError::HungUp,
            CopyError::Violation { what: "odd".into() },
            CopyError::Internal { what: "a thread ended".into() },
            CopyError::NotConfined { why: "no Landlock".into() },
            CopyError::Cancelled,
            CopyError::Stalled { waited: Duration::from_secs(60), trouble: Some("no route".into()) },
            CopyError::Stalled { waited: Duration::from_secs(60), trouble: None },
            CopyError::Unasked { name: b"x".to_vec() },
            CopyError::opening(file(Errno::NOENT)),
            CopyError::destination(FileError::changed("read", Path::new("f"), "written to")),
            CopyError::system("look at", Path::new("/srv"), io::Error::from_raw_os_error(13)),
            CopyError::Full { name: b"f".to_vec(), place: "/srv".into() },
        ];
        let errnos = [
            Errno::EXIST,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::NOSPC,
            Errno::NOENT,
            Errno::ACCESS,
            Errno::OPNOTSUPP,
            Errno::AGAIN,
            Errno::IO,
        ];
        all.extend(errnos.map(|errno| CopyError::source(file(errno))));
        all.extend(ssh.map(CopyError::from));
        all.extend(request.map(CopyError::from));
        all.extend(store.map(CopyError::from));
        all.extend(unfit);
        all
    }

    #[test]
    fn what_one_side_says_is_the_same_error_at_the_other() {
        for error in errors() {
            let said = Fatal::of(&error);
            let told = said.error().unwrap_or_else(|| panic!("{error:?}: not understood"));
            assert_eq!(Fatal::of(&told), said, "{error:?}");
            assert_eq!(told.to_string(), error.to_string());
            assert_eq!(std::mem::discriminant(&told), std::mem::discriminant(&error));
            assert_eq!(told.is_in_the_way(), error.is_in_the_way());
        }
    }

    #[test]
    fn what_only_the_persons_side_meets_is_said_as_a_text() {
        let error = CopyError::from(RequestFault::NoSource);
        assert!(
            matches!(Fatal::of(&error).error(), Some(CopyError::Internal { what }) if what == "no source")
        );
        let elsewhere = CopyError::Elsewhere { other: "box".into(), error: Box::new(CopyError::GivenUp) };
        assert_eq!(Fatal::of(&elsewhere), Fatal::of(&CopyError::GivenUp));
    }

    #[test]
    fn facts_of_nothing_and_facts_that_are_too_long_are_not_understood() {
        let file = FatalKind::Source as i32;
        for odd in [
            Fatal::default(),
            Fatal { kind: 27, ..Fatal::default() },
            Fatal { kind: file, class: 12, ..Fatal::default() },
            Fatal { kind: file, class: 1, number: 1 << 31, ..Fatal::default() },
            Fatal { kind: FatalKind::NotListening as i32, ..Fatal::default() },
            Fatal { kind: FatalKind::Internal as i32, detail: "x".repeat(MOST_TEXT + 1), ..Fatal::default() },
            Fatal {
                kind: FatalKind::Unasked as i32,
                path: vec![0; MOST_PATH + 1].into(),
                ..Fatal::default()
            },
        ] {
            assert!(odd.error().is_none(), "{odd:?}");
        }
        let long = CopyError::Internal { what: "é".repeat(MOST_TEXT) };
        assert_eq!(Fatal::of(&long).detail.len(), MOST_TEXT);
        let deep = Fatal::of(&CopyError::Unasked { name: [vec![0; MOST_PATH], b"end".to_vec()].concat() });
        assert!(deep.path.len() == MOST_PATH && deep.path.ends_with(b"end"));
    }
}
