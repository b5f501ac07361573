//! The scheduler as a whole.

mod environment;
mod example;
mod placements;
mod replay;
mod taking_back;
mod tree;
