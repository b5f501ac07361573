//! An object as a plain body: whole, or a range of it. A body that is cut off lacks its last chunk
//! or some of its length, so that no client takes a part for the whole.

use std::ops::Range;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use towpath_api::{ContentRequest, Parts};
use towpath_content::Oid;

use crate::problem::{CallFailure, JsonBody, RequestQuery, wrong};
use towpath_service::InProcess;
use towpath_service::content::{self, Opened};

pub(crate) async fn by_query(
    State(api): State<InProcess>,
    RequestQuery(request): RequestQuery<ContentRequest>,
    headers: HeaderMap,
) -> Result<Response, CallFailure> {
    open(&api, &request, &headers).await
}

/// The same with the ticket in the body, which keeps it out of logs.
pub(crate) async fn by_body(
    State(api): State<InProcess>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<ContentRequest>,
) -> Result<Response, CallFailure> {
    open(&api, &request, &headers).await
}

/// Of a part only that is fetched.
async fn open(
    api: &InProcess,
    request: &ContentRequest,
    headers: &HeaderMap,
) -> Result<Response, CallFailure> {
    if !headers.contains_key(header::RANGE) {
        return answer(content::open(&api.0, request).await?, headers);
    }
    let choose = |oid: &Oid, size| match requested_range(headers, Some(&tag(oid)), size) {
        RangeRequest::Part(range) if range != (0..size) => Some(range),
        RangeRequest::Part(_) | RangeRequest::Whole | RangeRequest::Nothing => None,
    };
    answer(content::open_part(&api.0, request, choose).await?, headers)
}

/// An object's name as the field `ETag` has it.
fn tag(oid: &Oid) -> String {
    format!("\"{oid}\"")
}

fn answer(opened: Opened, headers: &HeaderMap) -> Result<Response, CallFailure> {
    let mut response = Response::new(Body::empty());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let tag = opened.oid.as_ref().map(tag);
    if let Some(tag) = tag.as_ref().and_then(|tag| HeaderValue::from_str(tag).ok()) {
        fields.insert(header::ETAG, tag);
    }
    let Some(size) = opened.size else {
        *response.body_mut() = Body::from_stream(Parts::new(opened.in_order(0..u64::MAX)));
        return Ok(response);
    };
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let range = match requested_range(headers, tag.as_deref(), size) {
        RangeRequest::Whole => 0..size,
        RangeRequest::Part(range) => {
            let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            fields.insert(header::CONTENT_RANGE, text.parse().unwrap_or(HeaderValue::from_static("bytes")));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            range
        }
        RangeRequest::Nothing => return Err(outside(size)),
    };
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
    *response.body_mut() = Body::from_stream(Parts::new(opened.in_order(range)));
    Ok(response)
}

fn outside(size: u64) -> CallFailure {
    let message = format!("the range lies outside of the object, which has {size} bytes");
    wrong(StatusCode::RANGE_NOT_SATISFIABLE, message)
        .with_header(header::CONTENT_RANGE, format!("bytes */{size}"))
}

/// The range that the field `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RangeRequest {
    Whole,
    Part(Range<u64>),
    /// A range outside of the object.
    Nothing,
}

fn requested_range(headers: &HeaderMap, tag: Option<&str>, size: u64) -> RangeRequest {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_stale = text(header::IF_RANGE).is_some_and(|wanted| Some(wanted) != tag);
    match text(header::RANGE) {
        Some(range) if !is_stale => parse(range, size),
        _ => RangeRequest::Whole,
    }
}

/// One range of bytes (RFC 9110 §14.2). What is not understood, and several ranges at once, are
/// answered by the whole object, as the RFC allows.
pub(crate) fn parse(text: &str, size: u64) -> RangeRequest {
    let range = text.strip_prefix("bytes=").filter(|range| !range.contains(','));
    let Some((first, last)) = range.and_then(|range| range.trim().split_once('-')) else {
        return RangeRequest::Whole;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(length)) if first.is_empty() => size.saturating_sub(length)..size,
        _ => return RangeRequest::Whole,
    };
    if range.is_empty() { RangeRequest::Nothing } else { RangeRequest::Part(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let cases = [
            ("bytes=0-0", RangeRequest::Part(0..1)),
            ("bytes=2-", RangeRequest::Part(2..10)),
            ("bytes=2-99", RangeRequest::Part(2..10)),
            ("bytes=-3", RangeRequest::Part(7..10)),
            ("bytes=-30", RangeRequest::Part(0..10)),
            ("bytes=10-", RangeRequest::Nothing),
            ("bytes=-0", RangeRequest::Nothing),
            ("bytes=3-2", RangeRequest::Whole),
            ("bytes=0-1,4-5", RangeRequest::Whole),
            ("bytes=x-", RangeRequest::Whole),
            ("lines=1-2", RangeRequest::Whole),
            ("bytes=0-18446744073709551615", RangeRequest::Part(0..10)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text, 10), expected, "{text}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_answered_by_the_whole() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=1-2"));
        headers.insert(header::IF_RANGE, HeaderValue::from_static("\"x\""));
        assert_eq!(requested_range(&headers, Some("\"x\""), 10), RangeRequest::Part(1..3));
        assert_eq!(requested_range(&headers, Some("\"y\""), 10), RangeRequest::Whole);
    }
}
