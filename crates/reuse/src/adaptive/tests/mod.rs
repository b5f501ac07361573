//! The scheduler as a whole.

mod budgeted;
mod candidates;
mod competing;
mod environment;
mod example;
mod placements;
mod replay;
mod taking_back;
mod tree;
