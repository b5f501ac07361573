//! One rule's text becomes a rule.

use super::error::FilterFault;
use super::rule::{DirMerge, MatchRule, Prefixes, Sides, Template};
use super::{MAX_NESTING, MAX_RULE};
use crate::names::check_name;

/// Request of a rule's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A rule to be added.
    Match(MatchRule),
    /// A file whose rules are to be added now.
    Merge { file: Vec<u8>, contents: Template, exclude_self: Option<MatchRule> },
    /// A file to be looked for in each directory.
    DirMerge { merge: DirMerge, exclude_self: Option<MatchRule> },
    /// All rules of the list are forgotten.
    Clear,
}

/// The long names of rules, each with its short one.
const LONG_NAMES: [(&[u8], u8); 9] = [
    (b"clear", b'!'),
    (b"dir-merge", b':'),
    (b"exclude", b'-'),
    (b"hide", b'H'),
    (b"include", b'+'),
    (b"merge", b'.'),
    (b"protect", b'P'),
    (b"risk", b'R'),
    (b"show", b'S'),
];

/// Parses one rule, which is not empty.
pub(super) fn parse(text: &[u8], template: &Template) -> Result<Parsed, FilterFault> {
    let parsed = match template.prefixes {
        Prefixes::All => parse_named(text, template)?,
        Prefixes::Old => parse_old(text, template)?,
        Prefixes::None => Parsed::Match(match_rule(template, text)?),
    };
    Ok(parsed)
}

/// A pattern that may begin with `+ ` or `- `; a lone `!` clears.
fn parse_old(text: &[u8], template: &Template) -> Result<Parsed, FilterFault> {
    if text == b"!" {
        return Ok(Parsed::Clear);
    }
    let (include, pattern) = match text {
        [b'+', b' ', rest @ ..] => (true, rest),
        [b'-', b' ', rest @ ..] => (false, rest),
        _ => (template.include, text),
    };
    Ok(Parsed::Match(match_rule(&Template { include, ..*template }, pattern)?))
}

fn parse_named(text: &[u8], template: &Template) -> Result<Parsed, FilterFault> {
    let (kind, rest) = split_name(text)?;
    if kind == b'!' {
        return if rest.is_empty() { Ok(Parsed::Clear) } else { Err(FilterFault::Trailing) };
    }
    let end = rest.iter().position(|b| matches!(b, b' ' | b'_')).unwrap_or(rest.len());
    let modifiers = Modifiers::read(kind, &rest[..end])?;
    let argument = rest.get(end + 1..).unwrap_or(b"");
    let sides = modifiers.sides(kind, template)?;
    match kind {
        b'.' | b':' => merge_rule(kind, &modifiers, sides, template, argument),
        _ => {
            let include = matches!(kind, b'+' | b'S' | b'R');
            let mut rule = match_rule(&Template { include, sides, ..*template }, argument)?;
            rule.absolute |= modifiers.absolute;
            rule.perishable |= modifiers.perishable;
            rule.negate = modifiers.negate;
            Ok(Parsed::Match(rule))
        }
    }
}

/// The short name of the rule that `text` begins with, and what follows the name and its comma.
fn split_name(text: &[u8]) -> Result<(u8, &[u8]), FilterFault> {
    for (long, short) in LONG_NAMES {
        if let Some(rest) = text.strip_prefix(long) {
            return match rest {
                [b',', rest @ ..] => Ok((short, rest)),
                [] | [b' ' | b'_', ..] => Ok((short, rest)),
                _ => Err(FilterFault::Unknown),
            };
        }
    }
    match text {
        [kind @ (b'-' | b'+' | b'.' | b':' | b'H' | b'S' | b'P' | b'R' | b'!'), rest @ ..] => {
            Ok((*kind, rest.strip_prefix(b",").unwrap_or(rest)))
        }
        _ => Err(FilterFault::Unknown),
    }
}

/// The letters between a rule's name and its argument.
#[derive(Default)]
struct Modifiers {
    absolute: bool,
    negate: bool,
    perishable: bool,
    sides: Sides,
    /// Merge files: all lines are patterns to include, or to exclude.
    patterns: Option<bool>,
    exclude_self: bool,
    no_inherit: bool,
    words: bool,
}

impl Modifiers {
    fn read(kind: u8, letters: &[u8]) -> Result<Self, FilterFault> {
        let is_merge = matches!(kind, b'.' | b':');
        let names_side = matches!(kind, b'H' | b'S' | b'P' | b'R');
        let mut all = Self::default();
        for letter in letters {
            match letter {
                b'/' => all.absolute = true,
                b'p' => all.perishable = true,
                b'C' => return Err(FilterFault::Cvs),
                b'x' => return Err(FilterFault::Xattr),
                b'!' if !is_merge => all.negate = true,
                b's' if !names_side => all.sides.sender = true,
                b'r' if !names_side => all.sides.receiver = true,
                b'+' | b'-' if is_merge && all.patterns.is_none() => all.patterns = Some(*letter == b'+'),
                b'e' if is_merge => all.exclude_self = true,
                b'n' if is_merge => all.no_inherit = true,
                b'w' if is_merge => all.words = true,
                _ => return Err(FilterFault::Modifier),
            }
        }
        Ok(all)
    }

    /// The sides of the rule: by its name, its modifiers, or the file it stands in.
    fn sides(&self, kind: u8, template: &Template) -> Result<Sides, FilterFault> {
        let own = match kind {
            b'H' | b'S' => Sides::SENDER,
            b'P' | b'R' => Sides::RECEIVER,
            _ => self.sides,
        };
        match (template.sides.any(), own.any()) {
            (true, true) => Err(FilterFault::Sided),
            (true, false) => Ok(template.sides),
            (false, _) => Ok(own),
        }
    }
}

fn match_rule(template: &Template, pattern: &[u8]) -> Result<MatchRule, FilterFault> {
    check_length(pattern)?;
    Ok(MatchRule::new(template, pattern))
}

fn check_length(text: &[u8]) -> Result<(), FilterFault> {
    match text {
        [] => Err(FilterFault::Empty),
        _ if text.len() > MAX_RULE => Err(FilterFault::TooLong),
        _ if text.contains(&0) => Err(FilterFault::Nul),
        _ => Ok(()),
    }
}

fn merge_rule(
    kind: u8,
    modifiers: &Modifiers,
    sides: Sides,
    template: &Template,
    file: &[u8],
) -> Result<Parsed, FilterFault> {
    check_length(file)?;
    let contents = Template {
        prefixes: if modifiers.patterns.is_some() { Prefixes::None } else { Prefixes::All },
        words: modifiers.words,
        include: modifiers.patterns == Some(true),
        absolute: modifiers.absolute || template.absolute,
        perishable: modifiers.perishable || template.perishable,
        sides,
    };
    let (start, name) = split_file(file);
    let exclude_self = match modifiers.exclude_self {
        true => Some(match_rule(&Template::PLAIN, name)?),
        false => None,
    };
    if kind == b'.' {
        return Ok(Parsed::Merge { file: file.to_vec(), contents, exclude_self });
    }
    check_name(name).map_err(|_| FilterFault::DirMergeName)?;
    let (start, name) = (start.to_vec(), name.to_vec());
    let merge = DirMerge { start, name, inherit: !modifiers.no_inherit, contents };
    Ok(Parsed::DirMerge { merge, exclude_self })
}

/// Cuts a file's path after its last slash.
fn split_file(file: &[u8]) -> (&[u8], &[u8]) {
    let cut = file.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    file.split_at(cut)
}

/// Refuses a file that is named too deep inside others.
pub(super) fn check_nesting(depth: usize) -> Result<(), FilterFault> {
    if depth >= MAX_NESTING { Err(FilterFault::TooDeep) } else { Ok(()) }
}
