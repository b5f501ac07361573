//! The scheduler as a whole.

mod environment;
mod example;
mod placements;
mod replay;
mod tree;
