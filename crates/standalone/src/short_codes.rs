//! Short codes: a ticket that is handed over by some words that people say to each other.
//!
//! A code buys its ticket once. So who typed one has the ticket kept for a while: the same command goes on after an interruption
//! without the code's other end.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use towpath_api::{ApiError, ErrorKind};
use towpath_codes::Code;
use towpath_codes::code::USUAL_WORDS;
use towpath_codes::exchange::GuestFailure;
use towpath_config::{Config, Home, Switch};
use towpath_content::node_id::hex;
use towpath_handover::HandoverPlaces;
use towpath_handover::guest::{self, GuestError};
use towpath_handover::host::{self, HostError};
use towpath_peer_server::meetings::configured;

pub use towpath_codes::code::MAX_WORDS;
pub use towpath_codes::exchange::Fingerprint;
pub use towpath_handover::host::{HostEvent, HostWish, VoidCause};

/// Words of a code, unless somebody wants more.
pub const WORDS: usize = USUAL_WORDS;
/// A ticket that a code bought is kept for so long.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A longer file is none of ours.
const MAX_KEPT: u64 = 16 << 10;

/// True if `text` is meant as a code: no ticket, URL or object id begins with a digit.
pub fn is_code(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(':')
}

/// Hands `wish`'s ticket to whoever comes with the code.
pub async fn hand_out(
    config: &Config,
    wish: &HostWish,
    events: &mpsc::Sender<HostEvent>,
) -> Result<(), ApiError> {
    host::hand_out(&places(config), wish, events).await.map(drop).map_err(|error| match error {
        HostError::Nowhere(_) => ApiError::new(ErrorKind::Failed, error.to_string()).hint(ELSEWHERE),
        HostError::Guessed => ApiError::new(ErrorKind::Refused, error.to_string())
            .hint("share again, with --words 4 and --verify, or hand the ticket over by other means"),
        HostError::Impossible(_) => ApiError::new(ErrorKind::Failed, error.to_string()),
    })
}

/// What a code needs, on a line.
const ELSEWHERE: &str = "on one network multicast is enough; between networks both sides name the same rendezvous server \
                         in their configuration, under rendezvous.servers, or in TOW_RENDEZVOUS ('tow rendezvous' runs one)";
/// The same where nobody waits, which may be because somebody came before.
const NOBODY: &str = "a code is good for one receiver, and while the other end waits. On one network multicast is enough; between \
                      networks both sides name the same rendezvous server in their configuration, under rendezvous.servers, or in \
                      TOW_RENDEZVOUS ('tow rendezvous' runs one)";

/// What a code needs to be found from elsewhere, if that is missing here.
pub fn needed_elsewhere(config: &Config) -> Option<&'static str> {
    config.rendezvous.servers.is_empty().then_some(
        "good on this network; between networks both sides name a rendezvous server, in their configuration under \
         rendezvous.servers, or in TOW_RENDEZVOUS ('tow rendezvous' runs one)",
    )
}

/// The ticket that the code `text` buys, or bought before. Where people compare fingerprints they go to `fingerprints`.
pub async fn ticket_of(
    home: &Home,
    config: &Config,
    text: &str,
    fingerprints: &mpsc::Sender<Fingerprint>,
) -> Result<String, ApiError> {
    let wrong = |error: &dyn std::fmt::Display| ApiError::new(ErrorKind::Usage, error.to_string());
    let code: Code = text.trim().parse().map_err(|error| wrong(&error))?;
    if let Some(ticket) = kept(home, &code) {
        return Ok(ticket);
    }
    let ticket = guest::ask(&places(config), &code, fingerprints).await.map_err(not_bought)?;
    keep(home, &code, &ticket);
    Ok(ticket)
}

/// Forgets what the code `text` bought: all has come.
pub fn forget(home: &Home, text: &str) {
    if let Ok(code) = text.trim().parse::<Code>() {
        let _ = fs::remove_file(place(home, &code));
    }
}

fn places(config: &Config) -> HandoverPlaces {
    HandoverPlaces { servers: configured(config), lan: config.rendezvous.lan == Switch::On }
}

fn not_bought(error: GuestError) -> ApiError {
    let (kind, hint) = match &error {
        GuestError::Nobody(_) => (ErrorKind::NotFound, Some(NOBODY)),
        GuestError::Failed(GuestFailure::WrongCode) => {
            (ErrorKind::Refused, Some("a code is good for one try: the other end shows a new one now"))
        }
        GuestError::Failed(GuestFailure::Spent) => {
            (ErrorKind::Refused, Some("ask the other end for the code that it shows now"))
        }
        _ => (ErrorKind::Failed, None),
    };
    let error = ApiError::new(kind, error.to_string());
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Where the ticket of a code is kept. The name tells no words.
fn place(home: &Home, code: &Code) -> PathBuf {
    let name = blake3::derive_key("towpath 2026-11 ticket kept for a code v1", code.to_string().as_bytes());
    home.state().join("codes").join(hex(&name[..16]))
}

fn kept(home: &Home, code: &Code) -> Option<String> {
    let place = place(home, code);
    let about = fs::metadata(&place).ok()?;
    let is_old = about.modified().ok()?.elapsed().is_ok_and(|age| age > KEPT);
    if is_old || about.len() > MAX_KEPT {
        return None;
    }
    fs::read_to_string(place).ok()
}

fn keep(home: &Home, code: &Code, ticket: &str) {
    let folder = home.state().join("codes");
    let written = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
        tidy(&folder);
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(place(home, code));
        file?.write_all(ticket.as_bytes())
    });
    if let Err(error) = written {
        tracing::warn!(%error, "the code's ticket can't be kept for an interrupted get");
    }
}

/// Removes what was kept for too long.
fn tidy(folder: &std::path::Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|about| about.modified());
        if modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > KEPT)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_told_from_tickets_urls_and_names() {
        for (text, is_it) in [
            ("7-otter-lagoon", true),
            (" 7 otter lagoon ", true),
            ("tow:abc", false),
            ("https://1.example/x.tow", false),
            ("blake3:0123", false),
            ("-", false),
        ] {
            assert_eq!(is_code(text), is_it, "{text}");
        }
    }

    #[test]
    fn what_a_code_bought_is_kept_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::under(folder.path());
        let code = Code::random(7, WORDS, &mut towpath_codes::Entropy::from_seed(&[1; 32]));
        assert_eq!(kept(&home, &code), None);
        keep(&home, &code, "tow:ticket");
        assert_eq!(kept(&home, &code).as_deref(), Some("tow:ticket"));
        forget(&home, &code.to_string());
        assert_eq!(kept(&home, &code), None);
    }
}
