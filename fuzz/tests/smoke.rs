//! The quick look at every parser, as part of `cargo test`: the program is one of its own so that an input without end
//! can be named and stopped.

use std::process::Command;

#[test]
fn every_parser_bears_seeds_kept_inputs_and_changed_ones() {
    let status = Command::new(env!("CARGO_BIN_EXE_smoke")).status().expect("the program starts");
    assert!(status.success(), "an input made a parser fail; its name and the input stand above");
}
