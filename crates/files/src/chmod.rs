//! Changes to permissions as rsync's `--chmod` takes them: `D2775,F664`, `u=rwX,go-w`, `g=u`.
//!
//! Items apply in order, each to all entries, or with `D` to directories and with `F` to others
//! only. Where nobody is named (`+w`), the umask holds bits back. Symbolic links have no mode of
//! their own: do not ask for them.

use thiserror::Error;

use crate::names::display_name;

/// All bits that can be changed.
const ALL: u32 = 0o7777;

/// A list of changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chmod {
    items: Vec<Item>,
}

/// Error of a text that is not a list of changes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("--chmod: \"{}\" changes no modes; write D755, F644, u+rwX, go-w or g=u", display_name(item.as_bytes()))]
pub struct ChmodError {
    /// The part that is wrong.
    pub item: String,
}

/// One change, ready to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    kind: ClauseKind,
    change: ModeChange,
    /// For whom bits are copied from another class: `0o100` for user, `0o010` group, `0o001` others.
    who: u32,
    /// From whom, in the same form; 0: nothing is copied.
    copy: u32,
    /// Bits that may be copied.
    copy_mask: u32,
    /// `X` was there: files that nobody may execute get no such bits.
    keeps_x: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClauseKind {
    Any,
    Directories,
    Files,
}

/// Bits taken away, then bits added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeChange {
    Add { bits: u32 },
    Remove { bits: u32 },
    Set { clears: u32, bits: u32 },
}

impl Chmod {
    /// Parses a comma-separated list; `umask` holds for the items that do not name anybody.
    pub fn parse(text: &str, umask: u32) -> Result<Self, ChmodError> {
        let parse =
            |item: &str| parse_item(item.as_bytes(), umask).ok_or_else(|| ChmodError { item: item.into() });
        Ok(Self { items: text.split(',').map(parse).collect::<Result<_, _>>()? })
    }

    /// Adds the changes of a further `--chmod`, applied after these.
    pub fn append(&mut self, mut more: Self) {
        self.items.append(&mut more.items);
    }

    /// The mode after all changes. Bits above the permissions stay as they are.
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        let may_execute = is_dir || mode & 0o111 != 0;
        let items = self.items.iter().filter(|item| match item.kind {
            ClauseKind::Any => true,
            ClauseKind::Directories => is_dir,
            ClauseKind::Files => !is_dir,
        });
        items.fold(mode & ALL, |mode, item| item.apply(mode, may_execute)) | mode & !ALL
    }
}

impl Item {
    /// `may_execute` is what `X` asks: whether it held before any change.
    fn apply(&self, mode: u32, may_execute: bool) -> u32 {
        let copied = self.copied(mode);
        let kept = if self.keeps_x && !may_execute { !0o111 } else { ALL };
        match self.change {
            ModeChange::Add { bits } => mode | bits & kept | copied,
            ModeChange::Remove { bits } => mode & !bits & !copied,
            ModeChange::Set { clears, bits } => mode & !clears | bits & kept | copied,
        }
    }

    fn copied(&self, mode: u32) -> u32 {
        let from = match self.copy {
            0 => return 0,
            0o100 => mode >> 6,
            0o010 => mode >> 3,
            _ => mode,
        };
        (self.who * (from & 7)) & self.copy_mask
    }
}

fn parse_item(text: &[u8], umask: u32) -> Option<Item> {
    let at = text.iter().position(|b| !matches!(b, b'D' | b'F' | b'u' | b'g' | b'o' | b'a'))?;
    let (prefix, rest) = text.split_at(at);
    let kind = match (prefix.contains(&b'D'), prefix.contains(&b'F')) {
        (true, true) => return None,
        (true, false) => ClauseKind::Directories,
        (false, true) => ClauseKind::Files,
        (false, false) => ClauseKind::Any,
    };
    let named = prefix.iter().fold(Who::default(), |who, letter| who.with(*letter));
    match rest.split_first()? {
        (operator @ (b'+' | b'-' | b'='), letters) => {
            let what = ChangedBits::read(letters, named.special)?;
            Some(symbolic(kind, *operator, named, what, umask & 0o777))
        }
        (b'0'..=b'7', _) if named.classes == 0 => octal(kind, rest),
        _ => None,
    }
}

fn octal(kind: ClauseKind, digits: &[u8]) -> Option<Item> {
    let mut bits = 0;
    for digit in digits {
        let value = u32::from(digit.checked_sub(b'0').filter(|value| *value < 8)?);
        bits = Some(bits * 8 + value).filter(|bits| *bits <= ALL)?;
    }
    let change = ModeChange::Set { clears: ALL, bits };
    Some(Item { kind, change, who: 0, copy: 0, copy_mask: 0, keeps_x: false })
}

/// The classes that stand before the operator.
#[derive(Debug, Clone, Copy, Default)]
struct Who {
    /// `0o100` for user, `0o010` for group, `0o001` for others.
    classes: u32,
    /// Meaning of `s` for them.
    special: u32,
}

impl Who {
    const fn with(self, letter: u8) -> Self {
        let (classes, special) = match letter {
            b'u' => (0o100, 0o4000),
            b'g' => (0o010, 0o2000),
            b'o' => (0o001, 0),
            b'a' => (0o111, 0o6000),
            _ => (0, 0),
        };
        Self { classes: self.classes | classes, special: self.special | special }
    }
}

/// Text behind the operator.
#[derive(Debug, Clone, Copy, Default)]
struct ChangedBits {
    /// Read, write and execute bits of one class.
    permissions: u32,
    special: u32,
    copy: u32,
    keeps_x: bool,
}

impl ChangedBits {
    /// Reads the letters; `special` is what `s` means, or 0 where nobody was named with it.
    fn read(letters: &[u8], special: u32) -> Option<Self> {
        let mut what = Self::default();
        for letter in letters {
            let is_empty = what.permissions | what.special | what.copy == 0;
            match letter {
                // A class to copy from stands alone.
                b'u' | b'g' | b'o' if !is_empty => return None,
                b'u' => what.copy = 0o100,
                b'g' => what.copy = 0o010,
                b'o' => what.copy = 0o001,
                _ if what.copy != 0 => return None,
                b'r' => what.permissions |= 4,
                b'w' => what.permissions |= 2,
                b'x' => what.permissions |= 1,
                b'X' => (what.permissions, what.keeps_x) = (what.permissions | 1, true),
                // As in rsync: for nobody in particular it is the user's, and forgets a `t` before it.
                b's' if special == 0 => what.special = 0o4000,
                b's' => what.special |= special,
                b't' => what.special |= 0o1000,
                _ => return None,
            }
        }
        Some(what)
    }
}

fn symbolic(kind: ClauseKind, operator: u8, named: Who, what: ChangedBits, umask: u32) -> Item {
    let is_named = named.classes != 0;
    let who = if is_named { named.classes } else { 0o111 };
    let mask = if is_named { ALL } else { ALL & !umask };
    let bits = (who * what.permissions) & mask | what.special;
    let change = match operator {
        b'+' => ModeChange::Add { bits },
        b'-' => ModeChange::Remove { bits },
        _ => ModeChange::Set { clears: cleared(who, named.special, &what), bits },
    };
    Item { kind, change, who, copy: what.copy, copy_mask: mask, keeps_x: what.keeps_x }
}

/// The bits that `=` clears: permissions of the classes, and special bits if any were given for
/// them or if permissions are copied.
const fn cleared(who: u32, special: u32, what: &ChangedBits) -> u32 {
    let mut bits = who * 7;
    if what.special != 0 {
        bits |= special;
    }
    if what.copy != 0 {
        bits |= (who & 0o100) << 5 | (who & 0o010) << 7 | (who & 0o001) << 9;
    }
    bits
}
