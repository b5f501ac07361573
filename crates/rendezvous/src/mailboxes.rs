//! Mailboxes: a number under which one end waits, and another comes in; then each one's letters go to the other. Pure.
//!
//! The number is no secret, and the server sees the letters: what keeps strangers out is what the letters say
//! (`docs/formats/code.md`). Here it is bounded how many wait, and how often somebody may come in.

use std::collections::HashMap;

use bytes::Bytes;

use crate::address_group::AddressGroup;
use crate::entry_table::ConnectionNumber;
use crate::message::Refusal;
use crate::tries::TryCounts;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxLimits {
    /// Mailboxes in all. Default: 10,000.
    pub mailboxes: usize,
    /// Mailboxes that are waited at from one address. Default: 64.
    pub per_address: usize,
    /// Times that somebody may come in from one address in a minute. Default: 20.
    pub joins: usize,
    /// Letters that wait for somebody to come in. Default: 4.
    pub letters: usize,
}

impl Default for MailboxLimits {
    fn default() -> Self {
        Self { mailboxes: 10_000, per_address: 64, joins: 20, letters: 4 }
    }
}

/// Numbers are drawn from so many at most: a code takes six digits.
const MOST_NUMBERS: u64 = 1 << 18;

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Mailboxes {
    limits: MailboxLimits,
    open: HashMap<u32, Mailbox>,
    /// Which one a connection is at.
    at: HashMap<ConnectionNumber, u32>,
    waiting: HashMap<AddressGroup, usize>,
    tries: TryCounts,
}

#[derive(Debug)]
struct Mailbox {
    host: ConnectionNumber,
    from: AddressGroup,
    guest: Option<ConnectionNumber>,
    /// Of the host, for whoever comes in.
    letters: Vec<Bytes>,
}

impl Mailboxes {
    /// With none open.
    pub fn new(limits: MailboxLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Mailboxes that are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens one for `host`, under the wanted number if it is free, else under a short one. `chance` is drawn evenly.
    pub fn open(
        &mut self,
        (host, from): (ConnectionNumber, AddressGroup),
        wanted: u32,
        chance: u64,
    ) -> Result<u32, Refusal> {
        let waiting = self.waiting.get(&from).copied().unwrap_or(0);
        if self.at.contains_key(&host) {
            return Err(Refusal::Malformed);
        }
        if self.open.len() >= self.limits.mailboxes || waiting >= self.limits.per_address {
            return Err(Refusal::TooMany);
        }
        let number = match wanted {
            0 => self.free(chance, 0),
            wanted if self.open.contains_key(&wanted) => self.free(chance, 0),
            wanted => wanted,
        };
        self.open.insert(number, Mailbox { host, from, guest: None, letters: Vec::new() });
        self.at.insert(host, number);
        *self.waiting.entry(from).or_default() += 1;
        Ok(number)
    }

    /// Another number for `host`, whose one somebody has at another server. It is drawn from four times as many with each try.
    /// `None` if it has none, or a guest came in.
    pub fn renumber(&mut self, host: ConnectionNumber, chance: u64, tries: u32) -> Option<u32> {
        let before = *self.at.get(&host)?;
        self.open.get(&before).filter(|mailbox| mailbox.host == host && mailbox.guest.is_none())?;
        let number = self.free(chance, tries);
        let mailbox = self.open.remove(&before)?;
        self.open.insert(number, mailbox);
        self.at.insert(host, number);
        Some(number)
    }

    /// The host under `number`, and whether nobody has come in yet.
    pub fn host(&self, number: u32) -> Option<(ConnectionNumber, bool)> {
        self.open.get(&number).map(|mailbox| (mailbox.host, mailbox.guest.is_none()))
    }

    /// A number that is free: one that is about as short as it can be, and not easily foreseen.
    fn free(&self, chance: u64, tries: u32) -> u32 {
        let shortest = (2 * self.open.len() as u64 + 10).next_power_of_two();
        let span = shortest.saturating_mul(1 << (2 * tries).min(20)).min(MOST_NUMBERS);
        let begin = chance % span;
        let free = (begin..begin + span).map(|number| number as u32 + 1);
        free.into_iter().find(|number| !self.open.contains_key(number)).unwrap_or(u32::MAX)
    }

    /// `guest` comes in under `number`. Returns the host, and its letters that waited.
    pub fn join(
        &mut self,
        now: u64,
        (guest, from): (ConnectionNumber, AddressGroup),
        number: u32,
    ) -> Result<(ConnectionNumber, Vec<Bytes>), Refusal> {
        if self.at.contains_key(&guest) {
            return Err(Refusal::Malformed);
        }
        if !self.tries.admit(self.limits.joins, from, now) {
            return Err(Refusal::TooOften);
        }
        let mailbox = self.open.get_mut(&number).filter(|mailbox| mailbox.guest.is_none());
        let mailbox = mailbox.ok_or(Refusal::NobodyWaits)?;
        mailbox.guest = Some(guest);
        self.at.insert(guest, number);
        Ok((mailbox.host, std::mem::take(&mut mailbox.letters)))
    }

    /// A letter of one end. Returns who is to have it now; `None` while it waits.
    pub fn letter(
        &mut self,
        of: ConnectionNumber,
        letter: &Bytes,
    ) -> Result<Option<ConnectionNumber>, Refusal> {
        let number = self.at.get(&of).ok_or(Refusal::Malformed)?;
        let mailbox = self.open.get_mut(number).ok_or(Refusal::Malformed)?;
        match mailbox.guest {
            Some(guest) => Ok(Some(if of == guest { mailbox.host } else { guest })),
            None if mailbox.letters.len() >= self.limits.letters => Err(Refusal::TooMany),
            None => {
                mailbox.letters.push(letter.clone());
                Ok(None)
            }
        }
    }

    /// An end leaves, and with it the mailbox is closed: whoever had one try has had it. Returns the other end.
    pub fn leave(&mut self, end: ConnectionNumber) -> Option<ConnectionNumber> {
        let mailbox = self.open.remove(&self.at.remove(&end)?)?;
        let other = if end == mailbox.host { mailbox.guest } else { Some(mailbox.host) };
        if let Some(other) = other {
            self.at.remove(&other);
        }
        if let Some(waiting) = self.waiting.get_mut(&mailbox.from) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&mailbox.from);
            }
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> AddressGroup {
        AddressGroup::of([192, 0, 2, last].into())
    }

    fn letter(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn letters_wait_for_the_other_end_and_then_go_both_ways_until_one_leaves() {
        let mut boxes = Mailboxes::default();
        let number = boxes.open((1, from(1)), 7, 0).unwrap();
        assert_eq!(number, 7);
        assert_eq!(boxes.letter(1, &letter("first")), Ok(None));
        assert_eq!(boxes.join(0, (2, from(2)), 7), Ok((1, vec![letter("first")])));
        assert_eq!(boxes.join(0, (3, from(2)), 7), Err(Refusal::NobodyWaits), "a third one");
        assert_eq!(boxes.letter(2, &letter("answer")), Ok(Some(1)));
        assert_eq!(boxes.letter(1, &letter("again")), Ok(Some(2)));
        assert_eq!(boxes.letter(3, &letter("stray")), Err(Refusal::Malformed));
        assert_eq!((boxes.leave(2), boxes.leave(1), boxes.leave(3)), (Some(1), None, None));
        assert_eq!(boxes.join(0, (4, from(2)), 7), Err(Refusal::NobodyWaits));
        assert!(boxes.is_empty() && boxes.at.is_empty() && boxes.waiting.is_empty());
    }

    #[test]
    fn each_limit_holds() {
        let limits = MailboxLimits { mailboxes: 3, per_address: 2, joins: 2, letters: 1 };
        let mut boxes = Mailboxes::new(limits);
        for host in 1..=2 {
            boxes.open((host, from(1)), 0, 5).unwrap();
        }
        assert_eq!(boxes.open((3, from(1)), 0, 5), Err(Refusal::TooMany), "from one address");
        assert_eq!(boxes.open((1, from(9)), 0, 5), Err(Refusal::Malformed), "one each");
        boxes.open((4, from(2)), 0, 5).unwrap();
        assert_eq!(boxes.open((5, from(3)), 0, 5), Err(Refusal::TooMany), "in all");
        assert_eq!(boxes.letter(1, &letter("a")), Ok(None));
        assert_eq!(boxes.letter(1, &letter("b")), Err(Refusal::TooMany));
        for _ in 0..2 {
            assert_eq!(boxes.join(100, (6, from(6)), 4000), Err(Refusal::NobodyWaits));
        }
        assert_eq!(boxes.join(159, (6, from(6)), 4000), Err(Refusal::TooOften));
        assert_eq!(boxes.join(160, (6, from(6)), 4000), Err(Refusal::NobodyWaits));
    }

    #[test]
    fn numbers_are_short_and_those_in_use_are_not_given_again() {
        let mut boxes = Mailboxes::new(MailboxLimits { per_address: 1000, ..MailboxLimits::default() });
        let mut numbers: Vec<u32> = (0..100)
            .map(|host| boxes.open((host, from(1)), 0, host.wrapping_mul(0x9e37_79b9)).unwrap())
            .collect();
        assert!(numbers.iter().all(|number| (1..=512).contains(number)), "{numbers:?}");
        assert_ne!(boxes.open((200, from(1)), numbers[0], 3).unwrap(), numbers[0]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100);
    }

    #[test]
    fn who_has_the_number_of_another_server_gets_another_one_until_somebody_comes() {
        let mut boxes = Mailboxes::default();
        assert_eq!(boxes.renumber(1, 3, 0), None, "it has none");
        boxes.open((1, from(1)), 7, 0).unwrap();
        boxes.letter(1, &letter("waits")).unwrap();
        for tries in 0..40 {
            let number = boxes.renumber(1, u64::MAX - u64::from(tries), tries).unwrap();
            assert!((1..=999_999).contains(&number), "{number}");
            assert_eq!((boxes.host(number), boxes.len()), (Some((1, true)), 1));
        }
        let number = boxes.renumber(1, 5, 0).unwrap();
        assert_eq!(boxes.join(0, (2, from(2)), number), Ok((1, vec![letter("waits")])));
        assert_eq!((boxes.host(number), boxes.renumber(1, 9, 0)), (Some((1, false)), None));
        assert_eq!(boxes.renumber(2, 9, 0), None, "a guest has none to change");
    }
}
