//! The scheduler as a whole.

mod example;
