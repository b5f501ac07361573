//! Names by which a person takes back what is put: besides whole OIDs and tickets, the first digits of an OID, and the path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use towpath_api::{ApiError, ErrorKind, Object};
use towpath_content::Oid;
use towpath_service::display_name;

/// Digits of an OID that name it, at least.
const FEWEST: usize = 8;
/// Candidates that are named.
const NAMED: usize = 10;

/// True of a ticket and of a whole OID, which the service itself understands.
pub fn is_whole(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("tow:") || name.parse::<Oid>().is_ok())
}

/// The OID of what is `held` as `name`: a path, seen from `here`, or the first digits of an OID.
pub fn find(name: &OsStr, here: &Path, held: &[Object]) -> Result<String, ApiError> {
    let (path, text) = (here.join(name), name.to_string_lossy());
    let spellings: [Option<PathBuf>; 2] = [Some(path.components().collect()), path.canonicalize().ok()];
    let paths: Vec<_> = spellings.iter().flatten().map(|path| shown(path.as_path())).collect();
    let is_of = |object: &&Object| {
        object.path.as_ref().is_some_and(|path| paths.contains(path)) || begins(object, &text)
    };
    let found: Vec<_> = held.iter().filter(is_of).collect();
    match found[..] {
        [object] => Ok(object.oid.clone()),
        [] => Err(nothing(&text)),
        _ => Err(several(&text, &found)),
    }
}

fn shown(path: &Path) -> String {
    display_name(path.as_os_str().as_encoded_bytes())
}

/// True if one of the object's OIDs begins so, with what stands before the colon or without.
fn begins(object: &Object, text: &str) -> bool {
    let digits = digits(text);
    let begins = |oid: &String| {
        oid.starts_with(text) || oid.split_once(':').is_some_and(|(_, all)| all.starts_with(text))
    };
    digits.len() >= FEWEST
        && is_hex(digits)
        && [Some(&object.oid), object.content.as_ref()].into_iter().flatten().any(begins)
}

fn digits(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, digits)| digits)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn nothing(text: &str) -> ApiError {
    let digits = digits(text);
    if digits.len() < FEWEST && is_hex(digits) {
        let message = format!(
            "'{}' is too short: write {FEWEST} digits of an OID at least",
            display_name(text.as_bytes())
        );
        return ApiError::new(ErrorKind::Usage, message);
    }
    let message = format!("nothing is put as '{}', or shared now", display_name(text.as_bytes()));
    ApiError::new(ErrorKind::NotFound, message).hint("'tow ls' lists what is")
}

fn several(text: &str, found: &[&Object]) -> ApiError {
    let named = found.iter().take(NAMED).map(|object| {
        let path = object.path.as_deref().unwrap_or("-");
        // What is shared has its ticket there.
        let oid = object.content.as_ref().filter(|_| object.oid.starts_with("tow:")).unwrap_or(&object.oid);
        format!("\n     {oid}  {path}")
    });
    let message = format!("'{}' may be any of:{}", display_name(text.as_bytes()), named.collect::<String>());
    ApiError::new(ErrorKind::Usage, message).hint("write more of its digits")
}

#[cfg(test)]
mod tests {
    use towpath_api::{Held, TicketTerms};

    use super::*;

    fn object(oid: &str, content: Option<&str>, path: &str) -> Object {
        Object {
            oid: oid.into(),
            content: content.map(Into::into),
            kind: "blob".into(),
            size: None,
            path: Some(path.into()),
            ticket: None,
            terms: TicketTerms::default(),
            created: 0,
            held: Held::Pinned,
        }
    }

    fn held() -> Vec<Object> {
        vec![
            object("blake3:0123456789abcdef00", None, "/data/one"),
            object("live:0123456700000000", Some("blake3:aaaaaaaabbbb"), "/data/two"),
            object("live:ffffffff00", None, "/data/two"),
            object("blake3:eeeeeeee00", None, "/home/ffffffff"),
        ]
    }

    #[test]
    fn a_unique_beginning_or_a_path_names_one() {
        let held = held();
        for (name, number) in [
            ("012345678", 0),
            ("blake3:01234567", 0),
            ("live:01234567", 1),
            ("0123456700", 1),
            ("aaaaaaaa", 1),
            ("blake3:aaaaaaaab", 1),
            ("/data/one", 0),
            ("one", 0),
            ("./one", 0),
            ("one/", 0),
        ] {
            assert_eq!(
                find(OsStr::new(name), Path::new("/data"), &held),
                Ok(held[number].oid.clone()),
                "{name}"
            );
        }
    }

    #[test]
    fn what_names_none_or_several_is_refused_in_words() {
        let held = held();
        for (name, kind, words) in [
            (
                "01234567",
                ErrorKind::Usage,
                &["live:0123456700000000  /data/two", "blake3:0123456789abcdef00"][..],
            ),
            ("two", ErrorKind::Usage, &["live:01234567", "live:ffffffff00"]),
            // A path of one and the beginning of another.
            ("/home/../home/ffffffff", ErrorKind::NotFound, &["nothing is put"]),
            ("0123456", ErrorKind::Usage, &["too short"]),
            ("live:0123456", ErrorKind::Usage, &["too short"]),
            ("", ErrorKind::Usage, &["too short"]),
            ("0123456789ABCDEF", ErrorKind::NotFound, &["nothing is put", "0123456789ABCDEF"]),
            ("three", ErrorKind::NotFound, &["nothing is put as 'three'"]),
            ("md5:01234567", ErrorKind::NotFound, &["nothing is put"]),
        ] {
            let error = find(OsStr::new(name), Path::new("/data"), &held).unwrap_err();
            assert_eq!(error.kind, kind, "{name}");
            words
                .iter()
                .for_each(|words| assert!(error.message.contains(words), "{name}: {}", error.message));
        }
        let both = find(OsStr::new("ffffffff"), Path::new("/home"), &held).unwrap_err();
        assert!(both.message.contains("live:ffffffff00") && both.message.contains("blake3:eeeeeeee00"));
    }

    #[test]
    fn what_the_service_understands_is_left_to_it() {
        for (name, expected) in [
            ("tow:anything", true),
            (&*format!("blake3:{}", "0".repeat(64)), true),
            (&*format!("live:{}", "0".repeat(64)), true),
            (&*format!("live:{}", "0".repeat(63)), false),
            ("one", false),
        ] {
            assert_eq!(is_whole(OsStr::new(name)), expected, "{name}");
        }
    }
}
