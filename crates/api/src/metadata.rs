//! Metadata of entries: those that a copy or a get carries, those that a ticket tells, and those that were left out.

use serde::{Deserialize, Serialize};

/// Metadata of an entry that is carried over. The default is all of what `rsync -aHAX` carries but what gives rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preserve {
    /// Symbolic links (`-l`). Without it they are skipped and named.
    pub links: bool,
    /// Permission bits (`-p`). Without it new files get the source's by the umask.
    pub perms: bool,
    /// Setuid and setgid bits: only where a person asked for modes (`-p`, `-a`).
    pub special_bits: bool,
    /// Times of last modification (`-t`).
    pub times: bool,
    /// Users (`-o`), where this program may.
    pub owner: bool,
    /// Groups (`-g`), where this program may.
    pub group: bool,
    /// Owners are taken by number, not by name (`--numeric-ids`).
    pub numeric_ids: bool,
    /// Devices (`--devices`), where this program may.
    pub devices: bool,
    /// FIFOs and sockets (`--specials`).
    pub specials: bool,
    /// Hard links (`-H`).
    pub hard_links: bool,
    /// Access control lists (`-A`).
    pub acls: bool,
    /// Extended attributes (`-X`).
    pub xattrs: bool,
    /// Those that give rights, such as file capabilities and all of `trusted.`: only where a person asked for attributes.
    pub privileged_xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self {
            links: true,
            perms: true,
            special_bits: false,
            times: true,
            owner: true,
            group: true,
            numeric_ids: false,
            devices: false,
            specials: false,
            hard_links: true,
            acls: true,
            xattrs: true,
            privileged_xattrs: false,
        }
    }
}

impl Preserve {
    /// Metadata that are taken from a stranger unless a person asks for others: a group of this user's own would let its
    /// members in, so only root takes groups, as it does owners.
    pub fn of_strangers(is_root: bool) -> Self {
        Self { owner: is_root, group: is_root, ..Self::default() }
    }
}

/// Metadata of a tree's entries that whoever has the ticket is told, besides kinds, modes, times and the numbers of
/// owners. The default tells what belongs to the tree, and nothing of the machine or of where files came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToldMetadata {
    /// Names of owners.
    pub owner_names: bool,
    /// Names of one file stay so.
    pub hard_links: bool,
    /// Access control lists, which have numbers of owners.
    pub acls: bool,
    /// Extended attributes of `user.`, but those in which programs note where a file came from.
    pub xattrs: bool,
    /// With `xattrs` those too, and if this is root those outside `user.`.
    pub all_xattrs: bool,
}

impl Default for ToldMetadata {
    fn default() -> Self {
        Self { owner_names: false, hard_links: true, acls: true, xattrs: true, all_xattrs: false }
    }
}

impl ToldMetadata {
    /// True if nothing else was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Metadata that gives rights, and is carried over only where a person asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Entries whose setuid or setgid bits were left out.
    pub special_bits: u64,
    /// Entries of which attributes outside `user.` were left out.
    pub privileged_xattrs: u64,
}

impl Dropped {
    /// True if nothing was.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
