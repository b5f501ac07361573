//! Values that are new each time: random names, and the time.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use towpath_api::{ApiError, ErrorKind};

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(|error| ApiError::new(ErrorKind::Failed, format!("no randomness: {error}")))?;
    Ok(bytes)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
