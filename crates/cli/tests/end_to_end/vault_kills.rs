//! kill -9 of a put.
use crate::runner::situations;
situations![];
