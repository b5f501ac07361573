//! `towpath-lab`: real programs on emulated links.

fn main() {}
