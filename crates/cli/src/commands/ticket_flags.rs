//! The flags of `tow share` and `tow put` that say what their tickets allow, and how long.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use towpath_api::TicketTerms;

/// Longest duration that a ticket may be given: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Terms of a ticket.
#[derive(Debug, Clone, Copy, Args)]
pub struct TicketFlags {
    /// The ticket opens nothing any more after this time: 2h, 3d, or the last day as in 2026-12-31
    /// (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    expires: Option<u64>,
    /// Receivers serve nobody else: all that is fetched by the ticket comes from here
    #[arg(long)]
    no_swarm: bool,
}

impl TicketFlags {
    /// The terms as the API takes them.
    pub const fn terms(self) -> TicketTerms {
        TicketTerms { expires: self.expires, no_swarm: self.no_swarm }
    }
}

fn parse_expiry(text: &str) -> Result<u64, String> {
    expiry(text, SystemTime::now())
}

/// The end that `text` names, in seconds since 1970: so long from `now`, or the end of a day.
fn expiry(text: &str, now: SystemTime) -> Result<u64, String> {
    let unclear = || "write a duration, as in 2h or 3d, or a day, as in 2026-12-31".to_owned();
    let end = match humantime::parse_rfc3339_weak(&format!("{text}T23:59:59")) {
        // To its last second.
        Ok(day) if text.len() == "2026-12-31".len() => day + Duration::from_secs(1),
        _ => {
            let duration = humantime::parse_duration(text).map_err(|_| unclear())?;
            match duration <= LONGEST {
                true => now + duration,
                false => return Err("a ticket without --expires has no end; this one is too far away".into()),
            }
        }
    };
    match end > now {
        true => end.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).map_err(|_| unclear()),
        false => Err("that is over already".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_days_name_the_end() {
        let now = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let table = [
            ("2h", Ok(1_795_007_200)),
            ("3d", Ok(1_795_259_200)),
            ("90s", Ok(1_795_000_090)),
            ("2026-12-31", Ok(1_798_761_600)),
            ("2026-11-18", Ok(1_795_046_400)),
        ];
        for (text, end) in table {
            assert_eq!(expiry(text, now), end, "{text}");
        }
        for text in [
            "",
            "soon",
            "2",
            "2026-13-01",
            "2026-11-17",
            "0s",
            "200y",
            "-1h",
            "2026-12-31T10:00:00",
            "9999999999999y",
        ] {
            assert!(expiry(text, now).is_err(), "{text}");
        }
    }
}
