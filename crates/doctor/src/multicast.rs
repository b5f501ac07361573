//! Whether a code is found on this network: one that nobody has is announced, and looked for.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use towpath_config::Switch;
use towpath_lan::{LanAnnouncement, LanError, find};

use crate::findings::MulticastFinding;

/// Time for hearing it.
const WAIT: Duration = Duration::from_secs(3);
/// Time for all of it.
const LIMIT: Duration = Duration::from_secs(5);
/// Numbers that codes do not have.
const NUMBERS: std::ops::Range<u32> = 900_000..999_999;

/// Announces and looks, unless the configuration says no.
pub(crate) async fn look(lan: Switch) -> MulticastFinding {
    if lan == Switch::Off {
        return MulticastFinding::Off;
    }
    let looking = tokio::task::spawn_blocking(heard);
    match tokio::time::timeout(LIMIT, looking).await {
        Ok(Ok(Ok(finding))) => finding,
        Ok(Ok(Err(error))) => MulticastFinding::Trouble(error.to_string()),
        Ok(Err(error)) => MulticastFinding::Trouble(error.to_string()),
        Err(_) => MulticastFinding::NotHeard,
    }
}

fn heard() -> Result<MulticastFinding, LanError> {
    let failed = |error: std::io::Error| LanError::CannotBegin(error.to_string());
    // A port of our own, so that what is heard is what was announced.
    let own = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).map_err(failed)?;
    let (port, number) = (own.local_addr().map_err(failed)?.port(), fastrand::u32(NUMBERS));
    let begun = Instant::now();
    let _announced = LanAnnouncement::start(number, port)?;
    let mut found = find(number, WAIT)?;
    Ok(match found.any(|address| address.port() == port) {
        true => MulticastFinding::Heard(begun.elapsed()),
        false => MulticastFinding::NotHeard,
    })
}
