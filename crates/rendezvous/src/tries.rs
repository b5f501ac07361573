//! How often each address came in at mailboxes of late. Pure: handed the time. Memory is bounded, whoever comes: addresses for which there
//! is no room are counted together.

use std::collections::{HashMap, VecDeque};

use crate::address_group::AddressGroup;

/// Addresses that are counted apart, each some 100 bytes.
const COUNTED: usize = 16_384;
/// Seconds that a try counts.
const WINDOW: u64 = 60;

/// An address; `None`: all for which there is no room.
type TrySource = Option<AddressGroup>;

/// See the head of this module.
#[derive(Debug, Default)]
pub(crate) struct TryCounts {
    tries: HashMap<TrySource, usize>,
    /// The sources in the order in which their windows end.
    ends: VecDeque<(u64, TrySource)>,
}

impl TryCounts {
    /// Counts a try at `now`, in seconds; false if it is one more than `most`. What is refused does not count.
    pub(crate) fn admit(&mut self, most: usize, from: AddressGroup, now: u64) -> bool {
        self.forget(now);
        let has_room = self.tries.contains_key(&Some(from)) || self.tries.len() < COUNTED;
        let source = has_room.then_some(from);
        let tries = self.tries.entry(source).or_insert_with(|| {
            self.ends.push_back((now.saturating_add(WINDOW), source));
            0
        });
        let may = *tries < most;
        *tries += usize::from(may);
        may
    }

    /// Windows are all of one length, so they end in the order in which they began.
    fn forget(&mut self, now: u64) {
        // A clock that was set back keeps nobody out for longer.
        if self.ends.front().is_some_and(|(end, _)| *end > now.saturating_add(WINDOW)) {
            *self = Self::default();
        }
        while let Some((_, source)) = self.ends.pop_front_if(|(end, _)| *end <= now) {
            self.tries.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> AddressGroup {
        AddressGroup::of(address.parse().unwrap())
    }

    #[test]
    fn a_source_tries_so_often_in_a_window() {
        let mut counts = TryCounts::default();
        let table = [
            (0, "192.0.2.1", true),
            (10, "192.0.2.1", true),
            (20, "192.0.2.1", false),
            (20, "::ffff:192.0.2.1", false),
            (20, "192.0.2.2", true),
            (20, "2001:db8:1:2::1", true),
            (20, "2001:db8:1:2:ffff::9", true),
            (21, "2001:db8:1:2:3:4:5:6", false),
            (21, "2001:db8:1:3::1", true),
            (59, "192.0.2.1", false),
            (60, "192.0.2.1", true),
            (79, "2001:db8:1:2::1", false),
            (80, "2001:db8:1:2::1", true),
        ];
        for (now, address, expected) in table {
            assert_eq!(counts.admit(2, from(address), 1000 + now), expected, "{address} at {now}");
        }
        assert!(counts.admit(2, from("192.0.2.1"), 5) && counts.admit(2, from("192.0.2.1"), 5), "set back");
    }

    #[test]
    fn many_sources_take_no_more_memory_and_gain_nothing() {
        let (mut counts, known) = (TryCounts::default(), from("192.0.2.1"));
        assert!(counts.admit(3, known, 0));
        let others =
            (0..3 * COUNTED as u32).map(|number| AddressGroup::of(std::net::IpAddr::V4(number.into())));
        let admitted = others.filter(|from| counts.admit(3, *from, 0)).count();
        assert_eq!(
            admitted,
            COUNTED - 1 + 3,
            "one each for those that are counted apart, three for all others"
        );
        assert!(counts.tries.len() <= COUNTED + 1 && counts.ends.len() <= COUNTED + 1);
        assert!(counts.admit(3, known, 0), "who was there before is not pushed out");
        assert!(counts.admit(3, AddressGroup::of([10, 0, 0, 1].into()), 60));
        assert_eq!((counts.tries.len(), counts.ends.len()), (1, 1));
    }
}
