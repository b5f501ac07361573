//! Texts of what ended a copy, and of the results of its single entries, for people.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use towpath_api::{ApiError, ErrorKind};
use towpath_files::filter::FilterSide;
use towpath_files::{FileError, display_name, display_text};
use towpath_sync_messages::error::{
    CopyError, DestinationFault, EntryFault, LeftOut, Obstacle, RequestFault, Stays,
};

use super::{AGAIN, FREE_SPACE, ssh};

/// Bytes of the other side's words that are shown.
const MOST_WORDS: usize = 4 << 10;

/// Reason why a copy as a whole ended.
pub fn copy(error: &CopyError) -> ApiError {
    let said = |kind| ApiError::new(kind, error.to_string());
    match error {
        CopyError::Request(fault) => request(fault),
        CopyError::Unfit { path, fault } => unfit(path, *fault, None),
        CopyError::Ssh(error) => ssh::ssh(error),
        CopyError::Source(error) => super::source(error),
        CopyError::Opening(error) => opening(error),
        CopyError::Destination(error) => super::file(error),
        CopyError::System { doing, path, source } => super::io(doing, path, source),
        CopyError::Full { .. } => said(ErrorKind::NoSpace).hint(FREE_SPACE),
        CopyError::Index(error) => super::store(error),
        CopyError::Stalled { .. } => said(ErrorKind::TimedOut)
            .hint(format!("see that the sender runs and can be reached, then {AGAIN}")),
        CopyError::Cancelled | CopyError::Internal { .. } => said(ErrorKind::Failed),
        CopyError::GivenUp => said(ErrorKind::Interrupted),
        CopyError::Unasked { .. } => {
            said(ErrorKind::Corrupt).hint("nothing of it was written; do not use this sender")
        }
        CopyError::HungUp => said(ErrorKind::Unreachable).hint(AGAIN),
        CopyError::Violation { .. } => {
            said(ErrorKind::Failed).hint("use the same version of tow on both machines")
        }
        CopyError::NotConfined { .. } => said(ErrorKind::Failed)
            .hint("'sandbox = \"off\"' in its configuration, or TOW_SANDBOX=off, does without"),
        CopyError::Elsewhere { other, error } => match &**error {
            CopyError::Unfit { path, fault } => elsewhere(other, unfit(path, *fault, Some(other))),
            error => elsewhere(other, copy(error)),
        },
    }
}

/// Reason why one entry was not copied: what happened, and what to do next.
pub fn entry(fault: &EntryFault<'_>) -> (String, Option<String>) {
    let ApiError { message, hint, .. } = match fault {
        EntryFault::File(error) => obstacle(error).unwrap_or_else(|| super::source(error)),
        EntryFault::Store(error) => super::store(error),
        EntryFault::Fetch(error) => super::fetch(error),
        EntryFault::LeftOut(why) => return left_out(*why),
        EntryFault::More(_) => return (fault.to_string(), None),
    };
    (message, hint)
}

fn request(fault: &RequestFault) -> ApiError {
    let (message, hint) = match fault {
        RequestFault::DeletionByList => (
            "--delete does not go with --files-from, which tells only a part of the source".into(),
            "use filters instead: --include and --exclude",
        ),
        RequestFault::DeletionAtTop => {
            ("--delete needs -r: without it nothing is known of what is below".into(), "add -r")
        }
        RequestFault::BothElsewhere => {
            ("only one side can be on another machine".into(), "run tow on one of the two, over ssh")
        }
        RequestFault::BothSides => (
            "all sources have to be on the same side".into(),
            "copy those of this machine and those of the other one after the other",
        ),
        RequestFault::SeveralMachines => {
            ("the sources are on different machines".into(), "copy from one machine after the other")
        }
        RequestFault::NoSource => ("there is no source".into(), "name one"),
        RequestFault::ContentsAndOthers => (
            "the contents of a directory and other sources don't go together".into(),
            "run it once for each; a slash at the end of a source means what is in it",
        ),
        RequestFault::SeveralContents => {
            ("several directories' contents can't become one".into(), "copy one after the other")
        }
        RequestFault::SameName(name) => (
            format!("two sources have the same name: {}", display_name(name)),
            "copy them one after the other",
        ),
        RequestFault::IntoItself(path) => {
            (format!("{} can't be copied into itself", shown(path)), "choose another destination")
        }
        RequestFault::NoName => {
            ("the destination has no name".into(), "name the file that the copy is to be")
        }
        RequestFault::TooManyOptions => {
            (fault.to_string(), "split the list of files, and copy one after the other")
        }
        RequestFault::Filter(..) | RequestFault::Chmod(_) | RequestFault::Chown(_) => return value(fault),
    };
    ApiError::new(ErrorKind::Usage, message).hint(hint)
}

/// The value of an option that can't be read.
fn value(fault: &RequestFault) -> ApiError {
    let message = match fault {
        RequestFault::Filter(FilterSide::Sender, why) => why.clone(),
        RequestFault::Filter(FilterSide::Receiver, why) => format!("the filter rules: {why}"),
        RequestFault::Chmod(why) => format!("--chmod: {why}"),
        RequestFault::Chown(why) => format!("--chown: {why}"),
        other => other.to_string(),
    };
    ApiError::new(ErrorKind::Usage, message)
}

/// Sources can't go to `path`, on the machine `other` if not here.
fn unfit(path: &Path, fault: DestinationFault, other: Option<&str>) -> ApiError {
    let shown = shown(path);
    let message = format!("{shown} {fault}");
    let in_its_place = format!("{message}, and a copy would take its place");
    let (message, hint) = match fault {
        DestinationFault::NotADirectory => {
            (message, "name another destination, or remove what is there".into())
        }
        DestinationFault::Missing => (message, "make it first with mkdir -p".into()),
        DestinationFault::Socket => (in_its_place, "name another destination".into()),
        DestinationFault::Fifo | DestinationFault::Device => {
            let (file, ticket) = match other {
                None => (format!("cat FILE > {shown}"), format!("tow get -o - TICKET > {shown}")),
                Some(other) => (
                    format!("ssh {other} 'cat > {shown}' < FILE"),
                    format!("tow get -o - TICKET | ssh {other} 'cat > {shown}'"),
                ),
            };
            (in_its_place, format!("to write into it: {file}, or of a ticket: {ticket}"))
        }
        DestinationFault::DeadLink => (message, "remove it, or name the place that it should lead to".into()),
    };
    ApiError::new(ErrorKind::Exists, message).hint(hint)
}

fn opening(error: &FileError) -> ApiError {
    match super::source(error) {
        told if told.kind == ErrorKind::NotFound => told.hint("make it first with mkdir -p"),
        told => told,
    }
}

/// Obstacle that keeps an entry from its place; if only leave does, who gives that.
fn obstacle(error: &FileError) -> Option<ApiError> {
    let why = match Obstacle::of(error)? {
        obstacle @ Obstacle::FullDirectory => format!("{obstacle}; --force or --delete removes it"),
        Obstacle::Stays(Stays::Limited) => {
            "a directory is in the way, and what is in it is more than --max-delete allows".into()
        }
        obstacle => obstacle.to_string(),
    };
    let message = format!("{}: {why}", shown(error.path()));
    Some(ApiError::new(ErrorKind::Failed, message))
}

/// The error that ended the other side, which is called `other`. It made the facts of it: names, and what its system said.
fn elsewhere(other: &str, told: ApiError) -> ApiError {
    let ApiError { kind, message, hint } = told;
    let shown = |text: &str| display_text(&text[..text.floor_char_boundary(MOST_WORDS)]);
    let message = shown(&message);
    let message = match kind {
        ErrorKind::NotFound => format!("{other}:{message}"),
        _ if message.starts_with('/') => format!("{other}:{message}"),
        _ => message,
    };
    ApiError { kind, message, hint: hint.as_deref().map(shown) }
}

fn left_out(why: LeftOut) -> (String, Option<String>) {
    let (message, hint) = match why {
        LeftOut::Link => (why.to_string(), "-l copies links, -L what they lead to"),
        LeftOut::LinkOut => (why.to_string(), "without --safe-links it is copied"),
        LeftOut::Fifo | LeftOut::Socket => (why.to_string(), "--specials copies it"),
        LeftOut::Device => (why.to_string(), "--devices copies it"),
        LeftOut::Directory => return (format!("{why}, as -r is off"), None),
        LeftOut::Destination => return (format!("{why}, as it can't be copied into itself"), None),
        LeftOut::Filtered | LeftOut::Unasked => (why.to_string(), "do not use this sender"),
        LeftOut::LongPath(_) => (why.to_string(), "shorten the names on its way"),
        LeftOut::Temporary => (why.to_string(), "give it another name, or remove it at the source"),
        LeftOut::Deletions => (why.to_string(), "see the errors above, and run the same command again"),
        LeftOut::TooMany(..) => (why.to_string(), "if that is right, say --force or --max-delete=NUM"),
        LeftOut::Limited => (why.to_string(), "say --force or a higher --max-delete=NUM"),
    };
    (message, Some(hint.into()))
}

fn shown(path: &Path) -> String {
    display_name(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use towpath_ssh::SshError;

    use super::*;

    fn gone() -> FileError {
        FileError::new("open", Path::new("/nosuch"), io::Error::from_raw_os_error(2))
    }

    fn at(other: &str, error: CopyError) -> ApiError {
        copy(&CopyError::Elsewhere { other: other.into(), error: Box::new(error) })
    }

    #[test]
    fn the_other_machine_is_named_before_its_paths() {
        let error = at("box", CopyError::Source(gone().into()));
        assert_eq!(
            (&*error.message, error.kind),
            ("box:/nosuch: no such file or directory", ErrorKind::NotFound)
        );
        let error = at("box", CopyError::Opening(gone().into()));
        assert_eq!(error.hint.as_deref(), Some("make it first with mkdir -p"));
        let nothing = SshError::NothingMatches { pattern: b"x*".to_vec() };
        assert_eq!(at("box", CopyError::from(nothing)).message, "box:x*: nothing matches");
        assert_eq!(
            at("box", CopyError::HungUp).message,
            "the other side hung up before the copy was complete"
        );
    }

    #[test]
    fn what_the_other_machine_says_paints_nothing_and_is_no_novel() {
        let what = format!("\u{1b}]52;c;x\u{7}\u{202e}{}", "x".repeat(10_000));
        let error = at("box", CopyError::Violation { what });
        assert!(error.message.contains("\\u{1b}]52") && !error.message.contains(char::is_control));
        assert!(!error.message.contains('\u{202e}') && error.message.len() < MOST_WORDS + 100);
    }

    #[test]
    fn a_destination_that_is_no_place_says_what_would_be() {
        let of = |fault| copy(&CopyError::Unfit { path: "/dev/null".into(), fault });
        let error = of(DestinationFault::Device);
        assert_eq!(error.message, "/dev/null is a device, and a copy would take its place");
        assert!(error.hint.unwrap().contains("cat FILE > /dev/null"));
        let error = of(DestinationFault::Missing);
        assert_eq!(error.message, "/dev/null is not there, or no directory");
        assert_eq!(error.hint.as_deref(), Some("make it first with mkdir -p"), "of any folder");
        assert!(!of(DestinationFault::Socket).hint.unwrap().contains("cat"));
        let error = at("box", CopyError::Unfit { path: "/dev/null".into(), fault: DestinationFault::Device });
        assert_eq!(error.message, "box:/dev/null is a device, and a copy would take its place");
        assert!(error.hint.unwrap().contains("ssh box 'cat > /dev/null' < FILE"));
    }

    #[test]
    fn a_path_below_a_file_is_named_without_what_was_attempted() {
        let source = Arc::new(io::Error::from_raw_os_error(20));
        let error = CopyError::System { doing: "look at".into(), path: "file/".into(), source };
        assert_eq!(copy(&error).message, "file/: not a directory");
    }

    #[test]
    fn what_is_left_out_says_how_it_comes_along() {
        for (why, message, hint) in [
            (LeftOut::Fifo, "a FIFO", Some("--specials copies it")),
            (LeftOut::Directory, "a directory, as -r is off", None),
            (
                LeftOut::TooMany(1, 1),
                "1 of 1 entries would be deleted; none was",
                Some("if that is right, say --force or --max-delete=NUM"),
            ),
        ] {
            assert_eq!(entry(&EntryFault::LeftOut(why)), (message.into(), hint.map(Into::into)));
        }
        let of = |obstacle: Obstacle| FileError::new("replace", Path::new("/d"), io::Error::other(obstacle));
        for (obstacle, message) in [
            (
                Obstacle::FullDirectory,
                "/d: a directory that is not empty is in the way; --force or --delete removes it",
            ),
            (
                Obstacle::Stays(Stays::Limited),
                "/d: a directory is in the way, and what is in it is more than --max-delete allows",
            ),
            (
                Obstacle::Stays(Stays::Guarded),
                "/d: a directory is in the way, and more than half of the destination would be deleted",
            ),
            (Obstacle::SameFile, "/d: source and destination are the same file"),
        ] {
            assert_eq!(entry(&EntryFault::File(&of(obstacle))), (message.into(), None));
        }
        assert_eq!(entry(&EntryFault::File(&gone())).0, "/nosuch: no such file or directory");
    }
}
