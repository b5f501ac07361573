//! Destinations of a copy's sources: the habits of `cp` and of `rsync`, as a table.

use towpath_api::copy::Mode;

use crate::error::DestinationFault;

/// Kind of what stands at the destination's path; a symbolic link counts as what it points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingKind {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// Request for a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationQuery {
    /// Program whose habits are followed.
    pub mode: Mode,
    /// Number of sources.
    pub sources: usize,
    /// True for the contents of the one source, not the directory itself (rsync's slash).
    pub contents: bool,
    /// The destination was written with a slash at its end.
    pub slash: bool,
    /// The first source is a directory.
    pub is_dir: bool,
}

/// Rule by which sources map to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationRule {
    /// Into the destination, each under its own name.
    Into,
    /// Contents of the source into the destination.
    Contents,
    /// The destination becomes what the source is.
    As,
}

/// Decides on the rule.
pub fn rule_for(there: ExistingKind, query: DestinationQuery) -> Result<DestinationRule, DestinationFault> {
    use ExistingKind::{Directory, Nothing, Other};
    let DestinationQuery { mode, sources, contents, slash, is_dir } = query;
    match (there, mode) {
        (Other, _) if contents || slash || sources != 1 || is_dir => Err(DestinationFault::NotADirectory),
        (_, _) if contents => Ok(DestinationRule::Contents),
        (Directory, _) => Ok(DestinationRule::Into),
        (Nothing, Mode::Sync) if sources != 1 || slash || is_dir => Ok(DestinationRule::Into),
        (Nothing, Mode::Cp) if sources != 1 || slash && !is_dir => Err(DestinationFault::Missing),
        (Nothing | Other, _) => Ok(DestinationRule::As),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ExistingKind::{Directory, Nothing, Other};
    use Mode::{Cp, Sync};

    /// Mode, sources, contents, slash, directory; then for nothing, a directory, something else.
    type Row = (Mode, usize, bool, bool, bool, [Option<DestinationRule>; 3]);

    #[test]
    fn the_habits_of_cp_and_rsync() {
        let (into, contents, as_) =
            (Some(DestinationRule::Into), Some(DestinationRule::Contents), Some(DestinationRule::As));
        let rows: [Row; 10] = [
            (Cp, 1, false, false, false, [as_, into, as_]),
            (Cp, 1, false, true, false, [None, into, None]),
            (Cp, 1, false, false, true, [as_, into, None]),
            (Cp, 1, false, true, true, [as_, into, None]),
            (Cp, 2, false, false, false, [None, into, None]),
            (Sync, 1, false, false, false, [as_, into, as_]),
            (Sync, 1, false, true, false, [into, into, None]),
            (Sync, 1, false, false, true, [into, into, None]),
            (Sync, 1, true, false, true, [contents, contents, None]),
            (Sync, 2, false, false, false, [into, into, None]),
        ];
        for (mode, sources, contents, slash, is_dir, wanted) in rows {
            let query = DestinationQuery { mode, sources, contents, slash, is_dir };
            let got = [Nothing, Directory, Other].map(|existing| rule_for(existing, query).ok());
            assert_eq!(got, wanted, "{query:?}");
        }
    }
}
