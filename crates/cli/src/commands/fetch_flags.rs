//! The flags of `tow share` that say how many receivers there may be, and what is said of that.

use std::num::NonZeroU32;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::TicketTerms;

use crate::output::{Output, counted};

/// How many fetch.
#[derive(Debug, Clone, Copy, Args)]
pub struct FetchFlags {
    /// For one receiver, the first that comes. Once it has all of it the ticket is taken back and the command ends; an
    /// interrupted get goes on. Others are refused. Receivers serve nobody else
    #[arg(long, conflicts_with = "max_fetches")]
    once: bool,
    /// The same for so many receivers
    #[arg(long, value_name = "NUMBER")]
    max_fetches: Option<NonZeroU32>,
}

/// A line of `--json`.
#[derive(Debug, Serialize)]
struct SpentEvent {
    event: &'static str,
    receivers: u32,
}

impl FetchFlags {
    /// The number of nodes that may fetch, if there is a limit.
    pub fn most(self) -> Option<NonZeroU32> {
        self.max_fetches.or_else(|| self.once.then_some(NonZeroU32::MIN))
    }

    /// Terms that hold the receivers to it: they would serve others, whom nobody counts.
    pub fn bind(self, terms: TicketTerms) -> TicketTerms {
        TicketTerms { no_swarm: terms.no_swarm || self.most().is_some(), ..terms }
    }

    /// How long it is served, in words.
    pub fn served_until(self) -> String {
        self.most().map_or_else(|| "interrupted".into(), all_came)
    }

    /// Says that as many as may have fetched all of it.
    pub fn told_spent(self, output: &Output) -> ExitCode {
        if let Some(most) = self.most() {
            output.finish();
            match output.is_json() {
                true => output.object(&SpentEvent { event: "spent", receivers: most.get() }),
                false => output.print(&format!("tow: {}: the ticket is taken back", all_came(most))),
            }
        }
        ExitCode::SUCCESS
    }
}

fn all_came(most: NonZeroU32) -> String {
    let have = if most == NonZeroU32::MIN { "has" } else { "have" };
    format!("{} {have} all of it", counted(u64::from(most.get()), "receiver", "receivers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_forbids_receivers_to_serve_and_is_told_in_words() {
        let flags = |once, most| FetchFlags { once, max_fetches: NonZeroU32::new(most) };
        let table = [
            (flags(false, 0), None, "interrupted"),
            (flags(true, 0), Some(1), "1 receiver has all of it"),
            (flags(false, 1), Some(1), "1 receiver has all of it"),
            (flags(false, 1200), Some(1200), "1,200 receivers have all of it"),
        ];
        for (flags, most, words) in table {
            assert_eq!(flags.most().map(NonZeroU32::get), most);
            assert_eq!(flags.served_until(), words);
            let ends = TicketTerms { expires: Some(5), no_swarm: false };
            let bound = flags.bind(ends);
            assert_eq!(bound, TicketTerms { expires: Some(5), no_swarm: most.is_some() });
            assert!(flags.bind(TicketTerms { no_swarm: true, ..ends }).no_swarm);
        }
    }
}
