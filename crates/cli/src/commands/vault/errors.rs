//! Errors of vaults in words, with what to do next.

use std::io;

use towpath_api::{ApiError, ErrorKind};
use towpath_vault::error::VaultError;
use towpath_vault::head::HeadError;
use towpath_vault::keys::UnlockError;
use towpath_vault::server::ServerError;

/// The error of a command.
pub fn api_error(error: VaultError) -> ApiError {
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

fn kind(error: &VaultError) -> ErrorKind {
    match error {
        VaultError::NoEntry { .. } | VaultError::NoVersion { .. } => ErrorKind::NotFound,
        VaultError::Conflict { .. } => ErrorKind::Exists,
        VaultError::File(towpath_vault::FileError::Exists { .. }) => ErrorKind::Exists,
        VaultError::BadName { .. } => ErrorKind::Usage,
        VaultError::Changed { .. } | VaultError::Crowded { .. } => ErrorKind::Changed,
        VaultError::Server(ServerError::Unreachable(_)) => ErrorKind::Unreachable,
        VaultError::Server(ServerError::Refused(_)) | VaultError::ReadOnly => ErrorKind::Refused,
        VaultError::Server(_)
        | VaultError::Head(_)
        | VaultError::Block { .. }
        | VaultError::Tree { .. }
        | VaultError::OtherContent { .. }
        | VaultError::Damaged { .. }
        | VaultError::Record { .. } => ErrorKind::Corrupt,
        _ => ErrorKind::Failed,
    }
}

fn hint(error: &VaultError) -> Option<&'static str> {
    match error {
        VaultError::Head(HeadError::Rollback { .. } | HeadError::Gone { .. }) => Some(
            "the server lost or hides versions; nothing was changed here. Versions up to the one it shows can be restored",
        ),
        VaultError::Head(HeadError::Fork { .. }) => {
            Some("the server shows different vaults to different machines; nothing was changed here")
        }
        VaultError::Conflict { .. } => Some(
            "get it, and put what you made of both; or --overwrite: theirs stays in the vault as an older version",
        ),
        VaultError::Unlock(UnlockError::Wrong) => {
            Some("nobody can help who has lost it: that is what keeps the data secret")
        }
        VaultError::Server(ServerError::Lacks { .. } | ServerError::OtherBytes { .. }) => Some(
            "'tow vault check' tells all that is lost; older versions may be whole: 'tow vault restore NAME --version N'",
        ),
        _ => None,
    }
}
