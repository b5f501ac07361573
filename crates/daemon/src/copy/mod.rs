//! Copies of trees and files, from here, to here, or within this machine.

pub mod channel;
pub mod events;
pub mod options;
pub mod place;
pub mod race;

pub use events::{CopyEvent, CopySummary, Counts, FailureKind};
pub use options::{Check, CopyOptions, CopyRequest, Mode, Preserve, Via};

// TEMP: the operation itself is written elsewhere.
/// TEMP
pub async fn run(
    _: &std::sync::Arc<crate::Service>,
    _: CopyRequest,
    _: tokio::sync::mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, towpath_api::ApiError> {
    Ok(CopySummary::default())
}
/// TEMP
pub async fn serve_stdio(_: &std::sync::Arc<crate::Service>) -> Result<(), towpath_api::ApiError> {
    Ok(())
}
