//! Rules, and the canonical lines they are sent as.

/// Sides of a transfer that a rule was said to be for; neither: not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sides {
    pub sender: bool,
    pub receiver: bool,
}

impl Sides {
    pub(super) const SENDER: Self = Self { sender: true, receiver: false };
    pub(super) const RECEIVER: Self = Self { sender: false, receiver: true };
    pub(super) const BOTH: Self = Self { sender: true, receiver: true };

    /// True if a side was named.
    pub(super) const fn any(self) -> bool {
        self.sender || self.receiver
    }
}

/// Prefixes that the rules of a text begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefixes {
    /// A rule's name and modifiers.
    All,
    /// `+ ` and `- ` may begin a pattern, as in the older options.
    Old,
    /// None: all of it is the pattern.
    None,
}

/// Settings that the rules of a text have in common by the way they were named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Template {
    pub prefixes: Prefixes,
    /// Rules end at white space, not at the end of the line.
    pub words: bool,
    pub include: bool,
    pub absolute: bool,
    pub perishable: bool,
    pub sides: Sides,
}

impl Template {
    /// Rules as `--filter` takes them.
    pub(super) const PLAIN: Self = Self {
        prefixes: Prefixes::All,
        words: false,
        include: false,
        absolute: false,
        perishable: false,
        sides: Sides { sender: false, receiver: false },
    };

    /// Patterns as `--include` or `--exclude` takes them.
    pub(super) const fn old(include: bool) -> Self {
        Self { prefixes: Prefixes::Old, include, ..Self::PLAIN }
    }
}

/// One rule of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Match(MatchRule),
    DirMerge(DirMerge),
}

/// Includes or excludes what matches a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatchRule {
    pub include: bool,
    /// Matched against the path from the file system's root.
    pub absolute: bool,
    /// Holds for what does not match.
    pub negate: bool,
    /// Does not protect what lies in a directory that is deleted.
    pub perishable: bool,
    pub sides: Sides,
    /// Matches directories only: there was a slash at the end.
    pub directory: bool,
    /// Without that slash.
    pub pattern: Vec<u8>,
}

impl MatchRule {
    /// A rule with this pattern, and all else as the template has it.
    pub(super) fn new(template: &Template, pattern: &[u8]) -> Self {
        let mut rule = Self {
            include: template.include,
            absolute: template.absolute,
            negate: false,
            perishable: template.perishable,
            sides: template.sides,
            directory: false,
            pattern: Vec::new(),
        };
        rule.set_pattern(pattern);
        rule
    }

    /// Takes the slash at the end for what it means; a lone slash is a pattern.
    pub(super) fn set_pattern(&mut self, pattern: &[u8]) {
        let stripped = pattern.strip_suffix(b"/").filter(|rest| !rest.is_empty());
        self.directory = stripped.is_some();
        self.pattern = stripped.unwrap_or(pattern).to_vec();
    }
}

/// Has rules read from a file in each directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirMerge {
    /// The directory that was written before the name, with its slash: where to begin looking above
    /// the tree.
    pub start: Vec<u8>,
    /// The file's name in each directory.
    pub name: Vec<u8>,
    /// Its rules hold below the directory too.
    pub inherit: bool,
    pub contents: Template,
}

impl Rule {
    /// The line that parses to this rule and no other.
    pub(super) fn to_line(&self) -> Vec<u8> {
        match self {
            Self::Match(rule) => rule.to_line(),
            Self::DirMerge(merge) => merge.to_line(),
        }
    }
}

impl MatchRule {
    fn to_line(&self) -> Vec<u8> {
        let mut line = vec![if self.include { b'+' } else { b'-' }];
        add(&mut line, self.absolute, b'/');
        add(&mut line, self.negate, b'!');
        add_shared(&mut line, self.sides, self.perishable);
        line.push(b' ');
        line.extend_from_slice(&self.pattern);
        add(&mut line, self.directory, b'/');
        line
    }
}

impl DirMerge {
    fn to_line(&self) -> Vec<u8> {
        let mut line = vec![b':'];
        let has_no_prefixes = self.contents.prefixes == Prefixes::None;
        add(&mut line, self.contents.absolute, b'/');
        add(&mut line, has_no_prefixes, if self.contents.include { b'+' } else { b'-' });
        add(&mut line, !self.inherit, b'n');
        add(&mut line, self.contents.words, b'w');
        add_shared(&mut line, self.contents.sides, self.contents.perishable);
        line.push(b' ');
        line.extend_from_slice(&self.start);
        line.extend_from_slice(&self.name);
        line
    }
}

fn add(line: &mut Vec<u8>, is_set: bool, modifier: u8) {
    line.extend(is_set.then_some(modifier));
}

fn add_shared(line: &mut Vec<u8>, sides: Sides, perishable: bool) {
    add(line, sides.sender, b's');
    add(line, sides.receiver, b'r');
    add(line, perishable, b'p');
}
