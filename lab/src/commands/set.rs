//! `towpath-lab set`: changes a link of a lab that is up.

use crate::error::LabError;
use crate::net::control;

/// Change a link of a lab that is up.
#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// As `up` tells it
    lab: String,
    /// A link by its name in the scenario (link0, link1, ... where it has none)
    link: String,
    /// Direction first, if not both: `forth` or `back`; then `rate=10mbit`, `delay=20ms`, `loss=1%`,
    /// `burst=3`, `queue=256k`, `overhead=14`, `cut=true`
    #[arg(required = true, value_name = "[forth|back] KEY=VALUE")]
    words: Vec<String>,
}

/// Runs the command.
pub fn run(args: &SetArgs) -> Result<(), LabError> {
    let (way, params) = match &args.words[..] {
        [first, rest @ ..] if !first.contains('=') => (&first[..], rest),
        all => ("both", all),
    };
    control::set(&args.lab, &args.link, way, params)
}
