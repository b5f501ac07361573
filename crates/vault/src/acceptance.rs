//! Going on with what a server shows, though it does not follow from what was seen here: its disk was lost and it has an older copy, or it tells
//! this machine another story than before. No program can know that this is right, so a person names that version by its hash.
//!
//! The head that was seen stays in this machine's folder: it is the proof that there was more.

use towpath_vault_format::Digest;

use crate::client::{fetch_head, with_head};
use crate::error::VaultClientError;
use crate::head::{HeadError, NamedVersion, TrustedNodes};
use crate::keys::VaultKeys;
use crate::local::LocalVault;
use crate::server::RemoteVault;

/// The fewest digits of a hash that name a version: those that errors tell.
const DIGITS: usize = 8;

/// What a person goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedHead {
    /// The newest version that was seen before.
    pub seen: NamedVersion,
    /// The one that takes its place.
    pub accepted: NamedVersion,
    /// Members are others than those that were seen: who was taken out since may be back, with the keys of then.
    pub has_other_members: bool,
}

/// Takes the version that the server shows as the newest one, if its hash begins with these digits. It is proved as any other.
pub fn accept(
    folder: LocalVault,
    keys: VaultKeys,
    mut server: Box<dyn RemoteVault>,
    trusted: TrustedNodes,
    digits: &str,
) -> Result<AcceptedHead, VaultClientError> {
    let seen = folder.head()?.ok_or(VaultClientError::NothingToAccept)?;
    let shown = match fetch_head(server.as_mut(), &trusted, Some(&seen)) {
        Ok(_) => return Err(VaultClientError::NothingToAccept),
        Err(VaultClientError::Head(error)) => error.shown().ok_or(error)?,
        Err(error) => return Err(error),
    };
    let found = fetch_head(server.as_mut(), &trusted, None)?;
    if found.named() != shown || !names(digits, &shown.root) {
        return Err(VaultClientError::OtherVersion { digits: digits.to_owned(), shown });
    }
    let has_other_members = found.signed.root.members != seen.signed.root.members;
    // Whoever can't follow its keys could not go on with it.
    let vault = with_head(folder, keys, server, trusted, found)?;
    vault.folder.keep_head(&seen)?;
    vault.folder.forget_links();
    vault.folder.set_head(&vault.head)?;
    Ok(AcceptedHead { seen: seen.named(), accepted: shown, has_other_members })
}

fn names(digits: &str, root: &Digest) -> bool {
    digits.len() >= DIGITS && root.to_string().starts_with(&digits.to_ascii_lowercase())
}

impl HeadError {
    /// The version that the server shows, if it is a version at all that is proved but for its place.
    pub const fn shown(&self) -> Option<NamedVersion> {
        match self {
            Self::Rollback { found, .. } | Self::Unlinked { found, .. } | Self::Fork { found, .. } => {
                Some(*found)
            }
            Self::NotProved { .. } | Self::Gone { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_by_eight_digits_at_least() {
        let root = Digest([0xab; 32]);
        for (digits, is_it) in [
            ("abababab", true),
            ("ABABABAB", true),
            (&"ab".repeat(32), true),
            ("abababa", false),
            ("", false),
        ] {
            assert_eq!(names(digits, &root), is_it, "{digits}");
        }
        assert!(!names("abababac", &root) && !names(&"ab".repeat(33), &root));
    }
}
