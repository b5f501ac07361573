//! Tables of single decisions, and the replay: random worlds of sources against what full knowledge would reach.

mod bound;
mod flow;
mod foresight;
mod pair;
mod replay;
mod simulation;
mod tables;
mod uneven;
mod work;
mod world;
