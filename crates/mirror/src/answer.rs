//! What a web server's answer to a question for a range is: the range, all of the file, another place, or nothing of use (RFC 9110
//! §14, §15). Pure.

use std::ops::Range;
use std::time::Duration;

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::StatusCode;
use thiserror::Error;
use towpath_transfer::Outcome;

use crate::web_url::WrongUrl;

/// Longest time that a server may ask to be left alone for.
const MAX_REST: Duration = Duration::from_secs(60);
/// The same if it does not say how long.
const REST: Duration = Duration::from_secs(2);
/// The longest entity tag that is kept, in bytes.
const MAX_TAG: usize = 256;

/// Reason why a file did not come from a web server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WebError {
    /// No connection, or it broke before the answer.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// It leads to this machine or its network, and nobody here named it.
    #[error("leads to an address that is not public, and nobody here named it")]
    NotPublic,
    /// Its certificate is none that this machine trusts.
    #[error("shows a certificate that this machine does not trust ({0})")]
    Untrusted(String),
    /// It leads from an encrypted way to one that is not.
    #[error("redirects from https to http")]
    Downgrade,
    /// Nothing came for too long.
    #[error("says nothing")]
    Silent,
    /// The connection ended in the middle of the bytes.
    #[error("ended in the middle of an answer")]
    CutShort,
    /// It redirects to what it redirected to before, or too often.
    #[error("redirects in a ring")]
    Ring,
    /// It redirects to something that is no URL to fetch from.
    #[error("redirects to what {0}")]
    WrongRedirect(WrongUrl),
    /// It answers with this status, and may say when to ask again.
    #[error("answers with {0}")]
    Status(StatusCode, Option<Duration>),
    /// The file there is another one than before.
    #[error("has changed the file")]
    Changed,
    /// The file there has another size.
    #[error("has a file of {found} bytes, not of {expected}")]
    OtherSize {
        /// Bytes there.
        found: u64,
        /// Bytes wanted.
        expected: u64,
    },
    /// The answer does not follow from the question.
    #[error("answers with something else than what it was asked for: {0}")]
    NotAsAsked(&'static str),
}

impl WebError {
    /// The end of a want that failed so.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unreachable(_) | Self::Silent | Self::CutShort => Outcome::RetryLater(REST),
            Self::Changed => Outcome::SourceChanged,
            Self::Status(StatusCode::GONE, _) => Outcome::Gone,
            Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Outcome::Refused(self.to_string())
            }
            Self::Status(status, rest) if may_come(*status) => Outcome::RetryLater(rest.unwrap_or(REST)),
            _ => Outcome::NotHere,
        }
    }
}

/// True if the same question may be answered later.
fn may_come(status: StatusCode) -> bool {
    let is_for_now = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || is_for_now.contains(&status)
}

/// What came of a question for a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebAnswer {
    /// These bytes follow.
    Bytes(AnsweredRange),
    /// It is elsewhere.
    Moved(String),
}

/// Bytes that follow an answer's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredRange {
    /// The first of them.
    pub(crate) start: u64,
    /// Where they end, if that is known.
    pub(crate) end: Option<u64>,
    /// Bytes of the file, if they are known.
    pub(crate) total: Option<u64>,
    /// The file's entity tag, if it is a strong one.
    pub(crate) tag: Option<String>,
    /// True if it is all of the file, though a range was asked for.
    pub(crate) is_whole: bool,
}

/// Judges the head of an answer to a question for `asked`, which was asked on the condition that the file has the entity tag `known`.
pub(crate) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    asked: &Range<u64>,
    known: Option<&str>,
) -> Result<WebAnswer, WebError> {
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        let place = text(headers, &header::LOCATION).ok_or(WebError::NotAsAsked("a redirect to nowhere"))?;
        return Ok(WebAnswer::Moved(place.to_owned()));
    }
    let is_whole = match status {
        StatusCode::PARTIAL_CONTENT => false,
        StatusCode::OK => true,
        StatusCode::RANGE_NOT_SATISFIABLE => return Err(shorter(headers, asked)),
        status => return Err(WebError::Status(status, retry_after(headers))),
    };
    if text(headers, &header::CONTENT_ENCODING).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return Err(WebError::NotAsAsked("it is compressed"));
    }
    let tag = text(headers, &header::ETAG).filter(|tag| is_strong(tag)).map(str::to_owned);
    // The condition did not hold, or the server does not know it.
    if known.is_some() && tag.as_deref() != known {
        return Err(WebError::Changed);
    }
    let (start, end, total) = match is_whole {
        true => {
            let total = text(headers, &header::CONTENT_LENGTH).and_then(|len| len.parse().ok());
            (0, total, total)
        }
        false => content_range(headers, asked)?,
    };
    Ok(WebAnswer::Bytes(AnsweredRange { start, end, total, tag, is_whole }))
}

/// The range of a partial answer: it begins where it was asked to, and ends there or at the file's end.
fn content_range(
    headers: &HeaderMap,
    asked: &Range<u64>,
) -> Result<(u64, Option<u64>, Option<u64>), WebError> {
    let wrong = WebError::NotAsAsked("another range");
    let said = text(headers, &header::CONTENT_RANGE).and_then(|said| said.strip_prefix("bytes "));
    let (range, total) = said.and_then(|said| said.split_once('/')).ok_or(wrong.clone())?;
    let (first, last) = range.split_once('-').ok_or(wrong.clone())?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong.clone());
    let (first, last) = (number(first)?, number(last)?);
    let total = if total == "*" { None } else { Some(number(total)?) };
    let end = last.checked_add(1).ok_or(wrong.clone())?;
    let expected = total.map_or(asked.end, |total| asked.end.min(total));
    match first == asked.start && end == expected {
        true => Ok((first, Some(end), total)),
        false => Err(wrong),
    }
}

/// The file is shorter than what is wanted of it.
fn shorter(headers: &HeaderMap, asked: &Range<u64>) -> WebError {
    let found =
        text(headers, &header::CONTENT_RANGE).and_then(|said| said.strip_prefix("bytes */")?.parse().ok());
    found.map_or(WebError::Changed, |found| WebError::OtherSize { found, expected: asked.end })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn is_strong(tag: &str) -> bool {
    tag.len() <= MAX_TAG && tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')
}

/// Only seconds are understood: a date would be by the server's clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = text(headers, &header::RETRY_AFTER)?.parse().ok()?;
    Some(Duration::from_secs(seconds).clamp(Duration::from_secs(1), MAX_REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), hyper::http::HeaderValue::from_str(value).unwrap())
        });
        lines.collect()
    }

    fn judged(
        status: u16,
        lines: &[(&'static str, &str)],
        known: Option<&str>,
    ) -> Result<WebAnswer, WebError> {
        judge(StatusCode::from_u16(status).unwrap(), &headers(lines), &(100..200), known)
    }

    #[test]
    fn an_answer_is_what_was_asked_for_or_all_of_the_file() {
        let range = |start, end, total, tag: Option<&str>, is_whole| {
            let tag = tag.map(str::to_owned);
            Ok(WebAnswer::Bytes(AnsweredRange { start, end, total, tag, is_whole }))
        };
        let part = [("content-range", "bytes 100-199/1000"), ("etag", "\"a\"")];
        assert_eq!(judged(206, &part, None), range(100, Some(200), Some(1000), Some("\"a\""), false));
        assert_eq!(
            judged(206, &part, Some("\"a\"")),
            range(100, Some(200), Some(1000), Some("\"a\""), false)
        );
        assert_eq!(judged(206, &part, Some("\"b\"")), Err(WebError::Changed));
        let short = [("content-range", "bytes 100-149/150")];
        assert_eq!(judged(206, &short, None), range(100, Some(150), Some(150), None, false));
        let unknown = [("content-range", "bytes 100-199/*"), ("etag", "W/\"weak\"")];
        assert_eq!(judged(206, &unknown, None), range(100, Some(200), None, None, false));
        let whole = [("content-length", "1000")];
        assert_eq!(judged(200, &whole, None), range(0, Some(1000), Some(1000), None, true));
        assert_eq!(judged(200, &[], None), range(0, None, None, None, true));
        assert_eq!(judged(200, &[("etag", "\"b\"")], Some("\"a\"")), Err(WebError::Changed));
    }

    #[test]
    fn what_does_not_follow_from_the_question_is_refused() {
        for range in [
            "bytes 0-99/1000",
            "bytes 100-198/1000",
            "bytes 100-200/1000",
            "bytes */1000",
            "bytes 100-199",
            "items 100-199/1000",
            "bytes -100/1000",
            "bytes 100-18446744073709551615/*",
        ] {
            let refused = judged(206, &[("content-range", range)], None);
            assert_eq!(refused, Err(WebError::NotAsAsked("another range")), "{range}");
        }
        assert!(judged(206, &[], None).is_err());
        let packed = [("content-length", "1000"), ("content-encoding", "gzip")];
        assert_eq!(judged(200, &packed, None), Err(WebError::NotAsAsked("it is compressed")));
        assert_eq!(judged(302, &[], None), Err(WebError::NotAsAsked("a redirect to nowhere")));
        assert_eq!(judged(302, &[("location", "/x")], None), Ok(WebAnswer::Moved("/x".into())));
    }

    #[test]
    fn each_status_ends_a_want_in_its_way() {
        for (status, lines, outcome) in [
            (404, &[][..], Outcome::NotHere),
            (410, &[], Outcome::Gone),
            (416, &[], Outcome::SourceChanged),
            (416, &[("content-range", "bytes */7")], Outcome::NotHere),
            (403, &[], Outcome::Refused("answers with 403 Forbidden".into())),
            (503, &[], Outcome::RetryLater(REST)),
            (503, &[("retry-after", "7")], Outcome::RetryLater(Duration::from_secs(7))),
            (429, &[("retry-after", "999999")], Outcome::RetryLater(MAX_REST)),
            (429, &[("retry-after", "0")], Outcome::RetryLater(Duration::from_secs(1))),
            (503, &[("retry-after", "Fri, 27 Nov 2026 00:00:00 GMT")], Outcome::RetryLater(REST)),
            (400, &[], Outcome::NotHere),
            (204, &[], Outcome::NotHere),
            (304, &[], Outcome::NotHere),
        ] {
            assert_eq!(judged(status, lines, None).unwrap_err().outcome(), outcome, "{status}");
        }
    }
}
