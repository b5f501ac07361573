//! Requests that programs of this machine send to the local API.

use towpath_api_server::fuzzing;

/// The field `Range` of a request.
pub fn http_range(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for size in [0, 1, 10, 1 << 44, u64::MAX] {
        if let Some(range) = fuzzing::range(text, size) {
            assert!(range.start <= range.end && range.end <= size);
            assert!(!range.is_empty() || size == 0);
        }
    }
}

/// A path with a query.
pub fn api_query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(fuzzing::query(text) <= 4);
}
