//! Filter of entries that take part in a transfer, or are kept from deletion: rsync's filter rules
//! with rsync's meaning, byte for byte.
//!
//! | part | story |
//! |---|---|
//! | `parse` | one rule's text becomes a rule, or a [`FilterFault`] that says what is wrong with it |
//! | `rule` | what a rule is, and its one canonical line |
//! | [`RuleList`] | the ordered rules of a command line and its files; sent to the other side as lines |
//! | `pattern`, `wild` | a path against a pattern, in time bounded by the product of their lengths |
//! | [`Filter`] | the rules walked along a tree |
//! | `merges` | the rules of one side, with those of the per-directory files met on the way |
//! | `source` | rule files read, bounded, and cut into rules |
//! | [`safe_links`] | which symbolic links lead out of a tree |
//!
//! The first rule that matches decides; an entry that none matches takes part. A directory that is
//! excluded is never entered, so nothing below it is seen.
//!
//! Differences from rsync on purpose:
//! - CVS rules (`C`) and rules for extended attributes (`x`) are refused by name, and so are
//!   patterns with a NUL byte or over 4095 bytes, which rsync cuts short or drops.
//! - A per-directory file may name further ones (`dir-merge`), but it cannot merge a file from
//!   elsewhere (`merge`), nor one with a directory in its name: a tree is not trusted to have files
//!   outside of it read. A per-directory file that is a symbolic link, or cannot be read, is an
//!   error, as going on without its rules would send or delete what they keep.
//! - A rule anchored in a per-directory file works in a directory whose own name looks like a
//!   pattern (`[x]`), where rsync takes that name for part of the pattern.

mod below;
mod error;
mod list;
mod merges;
mod parse;
mod pattern;
mod rule;
pub mod safe_links;
mod source;
mod walk;
mod wild;

pub use below::FilterBelow;
pub use error::{FilterError, FilterFault, RulePlace};
pub use list::{FileKind, RuleList};
pub use merges::FilterSide;
pub use walk::Filter;
pub use wild::ShellPattern;

/// Rules of one list, or of the per-directory files that hold in one directory: a few hundred bytes
/// of memory each.
pub const MAX_RULES: usize = 65_536;
/// Bytes of one rule, as in rsync: the longest path the system takes.
pub const MAX_RULE: usize = 4095;
/// Bytes of one file of rules.
pub const MAX_FILE: usize = 4 << 20;
/// Kinds of per-directory files that hold in one directory: each is looked for in every directory.
pub const MAX_DIR_MERGES: usize = 64;
/// Depth to which files of rules may name further ones.
pub const MAX_NESTING: usize = 32;
