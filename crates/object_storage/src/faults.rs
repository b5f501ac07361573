//! What goes wrong with a request, and what it means for the caller.
//!
//! A server's own words are shown, shortened and without control characters: it is a stranger.

use std::error::Error;

use object_store::client::HttpError;
use towpath_byte_store::ByteStoreError;
use towpath_byte_store::error::OUTSIDE;

use crate::http::NoRoom;

/// Characters of a server's words that are shown.
const SHOWN: usize = 200;
/// Codes by which servers say that there is no room, besides status 507.
const FULL: [&str; 4] = ["QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "ServiceQuotaExceeded"];
/// Words of `object_store` before the status and the body of an answer. It has no other way to tell them.
const ANSWERED: &str = "non-2xx status code: ";

/// Explains what went wrong while `doing` something at `place`.
pub(crate) fn explain(place: &str, doing: &str, error: object_store::Error) -> ByteStoreError {
    let place = place.to_owned();
    if find::<NoRoom>(&error).is_some() {
        return ByteStoreError::Full { place, why: NoRoom.to_string() };
    }
    let text = full_text(&error);
    let answer = text.split_once(ANSWERED).map_or("", |(_, answer)| answer);
    let (status, code) = (status_of(answer), element(answer, "Code"));
    let why = words(status, code, element(answer, "Message"));
    if FULL.contains(&code) {
        return ByteStoreError::Full { place, why };
    }
    if code == "NoSuchBucket" {
        return ByteStoreError::Missing { place, why };
    }
    match status {
        Some(404) => ByteStoreError::NotHere,
        Some(401 | 403) => ByteStoreError::Denied { place, why },
        Some(416) => OUTSIDE,
        Some(408 | 429 | 500..) => ByteStoreError::Unreachable { place, why },
        Some(_) => ByteStoreError::Failed { what: format!("{doing} {place}"), source: why.into() },
        None if find::<HttpError>(&error).is_some() => {
            ByteStoreError::Unreachable { place, why: shown(&last_reason(&error)) }
        }
        None => ByteStoreError::Failed { what: format!("{doing} {place}"), source: error.into() },
    }
}

/// All that an error and its reasons say.
fn full_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push('\n');
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// The number at the begin of an answer.
fn status_of(answer: &str) -> Option<u16> {
    answer.get(..3)?.parse().ok()
}

/// What a server answered, in words.
fn words(status: Option<u16>, code: &str, message: &str) -> String {
    let status = status.map_or_else(|| "an error".into(), |status| status.to_string());
    match code {
        "" => format!("the server answers {status}"),
        code => shown(&format!("the server answers {status}: {code}, {message}")),
    }
}

/// The first error of a type in a chain.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The last reason in a chain, which is the plainest one.
fn last_reason(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The text in the first element of that name. Good enough for words that are only shown or compared.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let inner = xml.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    inner.map_or("", |(inner, _)| inner)
}

/// What a stranger said, without what could move a cursor.
fn shown(words: &str) -> String {
    let plain = words.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    plain.take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer = "503 Service Unavailable: <Error><Code>SlowDown</Code><Message>Wait.</Message></Error>";
        let said = words(status_of(answer), element(answer, "Code"), element(answer, "Message"));
        assert_eq!(said, "the server answers 503: SlowDown, Wait.");
        assert_eq!(words(status_of("404 Not Found: "), "", ""), "the server answers 404");
        assert_eq!(status_of(""), None);
    }

    #[test]
    fn codes_are_found_and_words_are_harmless() {
        let xml = "<Error><Code>NoSuchKey</Code><Message>a\u{1b}[2J\nb</Message></Error>";
        assert_eq!(element(xml, "Code"), "NoSuchKey");
        assert_eq!(shown(element(xml, "Message")), "a?[2J?b");
        assert_eq!(element("<Code>cut", "Code"), "");
        assert_eq!(shown(&"x".repeat(1000)).len(), SHOWN);
    }
}
