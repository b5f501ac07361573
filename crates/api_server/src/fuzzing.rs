//! Doors for the fuzz targets in `fuzz/`: what a program of this machine may say in the head of a request. Only there
//! is the feature `fuzzing` on.

use std::ops::Range;

use axum::extract::Query;
use axum::http::Uri;
use towpath_api::{ContentRequest, ListRequest, OpenPutRequest};

use crate::content::{RangeRequest, parse};
use crate::puts::PutOffset;

/// The bytes of an object that a field `Range` asks for: none if it lies outside.
pub fn range(text: &str, size: u64) -> Option<Range<u64>> {
    match parse(text, size) {
        RangeRequest::Whole => Some(0..size),
        RangeRequest::Part(range) => Some(range),
        RangeRequest::Nothing => None,
    }
}

/// Reads a path with a query as each call does that takes one; returns how many of them can.
pub fn query(text: &str) -> usize {
    let Ok(uri) = text.parse::<Uri>() else { return 0 };
    let list = Query::<ListRequest>::try_from_uri(&uri).is_ok();
    let content = Query::<ContentRequest>::try_from_uri(&uri).is_ok();
    let put = Query::<OpenPutRequest>::try_from_uri(&uri).is_ok();
    let part = Query::<PutOffset>::try_from_uri(&uri).is_ok();
    [list, content, put, part].into_iter().filter(|is_read| *is_read).count()
}
