//! Errors of vaults in words, with what to do next.

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
        | VaultClientError::NoMember(_) => ErrorKind::NotFound,
        VaultClientError::Conflict { .. } => ErrorKind::Exists,
        VaultClientError::File(towpath_vault::FileError::Exists { .. }) => ErrorKind::Exists,
        VaultClientError::BadName { .. } => ErrorKind::Usage,
        VaultClientError::Changed { .. } | VaultClientError::Crowded { .. } => ErrorKind::Changed,
        VaultClientError::Server(ServerError::Unreachable(_)) => ErrorKind::Unreachable,
        VaultClientError::Server(ServerError::Refused(_))
        | VaultClientError::ReadOnly
        | VaultClientError::NotADeleter
        | VaultClientError::NotTheOwner
        | VaultClientError::Share(ShareError::NotShared) => ErrorKind::Refused,
        VaultClientError::Server(_)
        | VaultClientError::Head(_)
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

fn hint(error: &VaultClientError) -> Option<&'static str> {
    match error {
        VaultClientError::Head(HeadError::Rollback { .. } | HeadError::Gone { .. }) => Some(
            "the server lost or hides versions; nothing was changed here. Versions up to the one it shows can be restored",
        ),
        VaultClientError::Head(HeadError::Fork { .. }) => {
            Some("the server shows different vaults to different machines; nothing was changed here")
        }
        VaultClientError::Conflict { .. } => Some(
            "get it, and put what you made of both; or --overwrite: theirs stays in the vault as an older version",
        ),
        VaultClientError::Unlock(UnlockError::Wrong) => {
            Some("nobody can help who has lost it: that is what keeps the data secret")
        }
        VaultClientError::Server(ServerError::Lacks { .. } | ServerError::OtherBytes { .. }) => Some(
            "'tow vault check' tells all that is lost; older versions may be whole: 'tow vault restore NAME --version N'",
        ),
        _ => None,
    }
}
