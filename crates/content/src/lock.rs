//! Mutexes whose holders leave nothing half-done: one that panicked spoils nothing for the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a holder panicked.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
