//! Errors of vaults in words, with what to do next.

use std::borrow::Cow;
use std::io;

use towpath_api::{ApiError, ErrorKind};
use towpath_vault::error::VaultClientError;
use towpath_vault::head::HeadError;
use towpath_vault::keys::{ShareError, UnlockError};
use towpath_vault::server::ServerError;

/// The error of a command.
pub fn api_error(error: VaultClientError) -> ApiError {
    let told = ApiError::new(kind(&error), error.to_string());
    match hint(&error) {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

/// The error of a command line.
pub fn usage(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Usage, message)
}

/// The error of the system about a file.
pub fn of_file(path: &std::path::Path, error: &io::Error) -> ApiError {
    ApiError::new(ErrorKind::Failed, format!("{}: {error}", path.display()))
}

fn kind(error: &VaultClientError) -> ErrorKind {
    match error {
        VaultClientError::NoEntry { .. }
        | VaultClientError::NoVersion { .. }
        | VaultClientError::NoneReadable { .. }
        | VaultClientError::NoMember(_) => ErrorKind::NotFound,
        VaultClientError::Conflict { .. } | VaultClientError::Overtaken { .. } => ErrorKind::Exists,
        VaultClientError::File(towpath_vault::FileError::Exists { .. }) => ErrorKind::Exists,
        VaultClientError::BadName { .. }
        | VaultClientError::NothingToAccept
        | VaultClientError::OtherVersion { .. } => ErrorKind::Usage,
        VaultClientError::Changed { .. } | VaultClientError::Crowded { .. } => ErrorKind::Changed,
        VaultClientError::Server(ServerError::Unreachable(_)) => ErrorKind::Unreachable,
        VaultClientError::Server(ServerError::Refused(_))
        | VaultClientError::ReadOnly
        | VaultClientError::NotADeleter
        | VaultClientError::NotTheOwner
        | VaultClientError::Share(ShareError::NotShared) => ErrorKind::Refused,
        VaultClientError::Server(_)
        | VaultClientError::Head(_)
        | VaultClientError::Unconfirmed(_)
        | VaultClientError::Catalogue { .. }
        | VaultClientError::Block { .. }
        | VaultClientError::Tree { .. }
        | VaultClientError::OtherContent { .. }
        | VaultClientError::Hidden { .. }
        | VaultClientError::Share(ShareError::NotTheOwners | ShareError::Sealed | ShareError::OtherEpochs)
        | VaultClientError::Damaged { .. }
        | VaultClientError::Record { .. } => ErrorKind::Corrupt,
        _ => ErrorKind::Failed,
    }
}

fn hint(error: &VaultClientError) -> Option<Cow<'static, str>> {
    let hint: &str = match error {
        VaultClientError::Head(error) => return head_hint(error).map(Cow::Owned),
        VaultClientError::Conflict { .. } => {
            "get it, and put what you made of both; or --overwrite: theirs stays in the vault as an older version"
        }
        VaultClientError::Overtaken { .. } => {
            "'tow vault get' gets what is kept here, and 'tow vault commit --drop' forgets it; then put what you make of both with --overwrite: theirs stays as an older version"
        }
        VaultClientError::Uncommitted => "'tow vault commit' sends it",
        VaultClientError::Damaged { path } if path.ends_with("uncommitted") => {
            "'tow vault commit --drop' forgets what waits there; what is on the server is not damaged"
        }
        VaultClientError::Unlock(UnlockError::Wrong) => {
            "nobody can help who has lost it: that is what keeps the data secret"
        }
        VaultClientError::Server(ServerError::Lacks { .. } | ServerError::OtherBytes { .. }) => {
            "'tow vault check' tells all that is lost; older versions may be whole: 'tow vault restore NAME --version N'"
        }
        VaultClientError::Catalogue { .. } => {
            "'tow vault log' tells who wrote it; 'tow vault revert' makes a new version that is as the last one that can be read"
        }
        VaultClientError::Block { .. } | VaultClientError::Tree { .. } => {
            "'tow vault log' tells who wrote it; older versions may be whole: 'tow vault restore NAME --version N'. To go on: 'tow vault put --overwrite', or 'tow vault revert --to N'"
        }
        _ => return None,
    };
    Some(Cow::Borrowed(hint))
}

/// What to do about a server that shows something else than was seen.
fn head_hint(error: &HeadError) -> Option<String> {
    let what = match error {
        HeadError::Fork { .. } => "the server shows different vaults to different machines",
        HeadError::Rollback { .. } | HeadError::Gone { .. } | HeadError::Unlinked { .. } => {
            "the server lost or hides versions"
        }
        HeadError::NotProved { .. } => return None,
    };
    let kept = "nothing was changed here, and what the server still has can be restored";
    let next = error.shown().map(|shown| {
        let hash = shown.root.short();
        format!(
            ". Ask its keeper; if that is all that is left, this goes on with it: tow vault accept {hash}"
        )
    });
    Some(format!("{what}; {kept}{}", next.unwrap_or_default()))
}
