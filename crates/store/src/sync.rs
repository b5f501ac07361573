//! Locks that outlive a panic.
//!
//! Each critical section of this crate leaves its state whole at every point where it could
//! unwind, so a lock that a panicking thread held is simply taken over.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
