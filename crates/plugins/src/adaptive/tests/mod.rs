//! The scheduler as a whole.

mod example;
mod placements;
mod tree;
