//! Those who fetch what this command serves, for the person who waits at the sender's terminal: one line
//! while somebody fetches, and one for each end. Pure: handed the time and the width.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::HumanBytes;
use towpath_api::{Fetch, FetchState, RELAYED};
use towpath_service::display_text;

use crate::bar::RateMeter;

/// Receivers and what they fetch at the moment.
#[derive(Debug, Default)]
pub struct Receivers(BTreeMap<(String, String), (Fetch, RateMeter, Option<f64>)>);

impl Receivers {
    /// Takes an event; returns a line to keep if it is an end.
    pub fn note(&mut self, fetch: &Fetch, now: Instant) -> Option<String> {
        let key = (fetch.peer.clone(), fetch.oid.clone());
        let ended = ended(fetch);
        if ended.is_some() {
            self.0.remove(&key);
            return ended;
        }
        let (known, meter, rate) =
            self.0.entry(key).or_insert_with(|| (fetch.clone(), RateMeter::default(), None));
        *rate = meter.rate(now, fetch.bytes);
        known.clone_from(fetch);
        None
    }

    /// The line for `width` columns, if somebody fetches.
    pub fn line(&self, width: usize) -> Option<String> {
        let rates: f64 = self.0.values().filter_map(|(_, _, rate)| *rate).sum();
        let speed = if rates >= 1.0 { format!(", {}/s", HumanBytes(rates as u64)) } else { String::new() };
        let mut all = self.0.values().map(|(fetch, ..)| fetch);
        let first = all.next()?;
        let line = match all.map(|fetch| fetch.bytes).reduce(|one, other| one + other) {
            None => format!("{} fetches {}: {}{speed}", place(first), name(first), amount(first)),
            Some(bytes) => {
                let sent = HumanBytes(first.bytes + bytes);
                format!("{} receivers: {sent} sent{speed}", self.0.len())
            }
        };
        Some(line.chars().take(width).collect())
    }
}

fn amount(fetch: &Fetch) -> String {
    match fetch.size {
        Some(size) => format!("{} of {} sent", HumanBytes(fetch.bytes), HumanBytes(size)),
        None => format!("{} sent", HumanBytes(fetch.bytes)),
    }
}

fn name(fetch: &Fetch) -> String {
    if fetch.name.is_empty() { "what is read".into() } else { display_text(&fetch.name) }
}

/// The line that stays, if it is an end.
fn ended(fetch: &Fetch) -> Option<String> {
    let (name, sent) = (name(fetch), HumanBytes(fetch.bytes));
    let error = fetch.error.as_deref().map(display_text).unwrap_or_default();
    let what = match fetch.state {
        FetchState::Begun | FetchState::UnderWay => return None,
        FetchState::Complete => {
            format!("has all of {name}: {sent} sent in {:.1} s", fetch.seconds.as_f64())
        }
        FetchState::Partly if error.is_empty() => format!("has a part of {name}: {sent} sent"),
        FetchState::Partly => format!("has {name} but for some files: {error}; {sent} sent"),
        FetchState::Failed => format!("could not fetch {name}: {error}; {sent} sent"),
        FetchState::BrokenOff => format!("broke off {name} after {sent}"),
    };
    Some(format!("tow: {} {what}", receiver(&fetch.address, &fetch.peer)))
}

fn place(fetch: &Fetch) -> String {
    match &*fetch.address {
        RELAYED => receiver(RELAYED, &fetch.peer),
        address => address.to_owned(),
    }
}

/// A receiver, for people: where it is, or that it came by a relay, which alone knows.
pub fn receiver(address: &str, peer: &str) -> String {
    match address {
        RELAYED => format!("peer {peer} {RELAYED}"),
        address => format!("{address} (peer {peer})"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use towpath_api::Seconds;

    fn fetch(peer: &str, state: FetchState, bytes: u64) -> Fetch {
        Fetch {
            state,
            peer: peer.into(),
            address: "192.0.2.7".into(),
            oid: "blake3:00".into(),
            name: "notes.pdf".into(),
            bytes,
            size: Some(10 << 20),
            seconds: Seconds::from_duration(Duration::from_millis(2100)),
            error: None,
        }
    }

    #[test]
    fn one_is_shown_by_name_and_several_as_a_sum() {
        let (mut receivers, now) = (Receivers::default(), Instant::now());
        assert_eq!(receivers.line(80), None);
        assert_eq!(receivers.note(&fetch("a", FetchState::Begun, 0), now), None);
        let later = now + Duration::from_secs(1);
        receivers.note(&fetch("a", FetchState::UnderWay, 1 << 20), later);
        let one = "192.0.2.7 fetches notes.pdf: 1.00 MiB of 10.00 MiB sent, 1.00 MiB/s";
        assert_eq!(receivers.line(80).unwrap(), one);
        assert_eq!(receivers.line(20).unwrap(), &one[..20]);
        receivers.note(&fetch("b", FetchState::Begun, 2 << 20), later);
        assert_eq!(receivers.line(80).unwrap(), "2 receivers: 3.00 MiB sent, 1.00 MiB/s");
    }

    #[test]
    fn each_end_is_a_line() {
        let (mut receivers, now) = (Receivers::default(), Instant::now());
        receivers.note(&fetch("a", FetchState::Begun, 0), now);
        let mut end = |state, error: Option<&str>| {
            let fetch = Fetch { error: error.map(Into::into), ..fetch("a", state, 3 << 20) };
            receivers.note(&fetch, now).unwrap()
        };
        let begin = "tow: 192.0.2.7 (peer a) ";
        let complete = format!("{begin}has all of notes.pdf: 3.00 MiB sent in 2.1 s");
        assert_eq!(end(FetchState::Complete, None), complete);
        assert_eq!(end(FetchState::BrokenOff, None), format!("{begin}broke off notes.pdf after 3.00 MiB"));
        let failed = format!("{begin}could not fetch notes.pdf: it changed; 3.00 MiB sent");
        assert_eq!(end(FetchState::Failed, Some("it changed")), failed);
        assert_eq!(receivers.line(80), None);
    }

    #[test]
    fn who_comes_by_a_relay_is_told_so() {
        let (mut receivers, now) = (Receivers::default(), Instant::now());
        let by_relay = |state| Fetch { address: RELAYED.into(), ..fetch("a", state, 3 << 20) };
        receivers.note(&by_relay(FetchState::Begun), now);
        let line = receivers.line(80).unwrap();
        assert_eq!(line, "peer a by relay fetches notes.pdf: 3.00 MiB of 10.00 MiB sent");
        let end = receivers.note(&by_relay(FetchState::Complete), now).unwrap();
        assert_eq!(end, "tow: peer a by relay has all of notes.pdf: 3.00 MiB sent in 2.1 s");
    }
}
