//! Tickets that a site's cache was handed: what it brings, has, or could not get. Pure: it is handed the time, and says what to do.
//!
//! | the ticket is | whoever hands it over |
//! |---|---|
//! | new, of a machine that may use the cache | has it fetched, and is to ask again |
//! | on its way | draws on what has come, or is to ask again if nothing can be had yet |
//! | on its way, and nothing comes | goes elsewhere |
//! | here | draws on it. Now and then it is looked whether all is here still |
//! | not to be had, as was found out just now | goes elsewhere |

use std::collections::HashMap;
use std::time::{Duration, Instant};

use towpath_content::{NodeId, Oid, Ticket};
use towpath_protocol::access::TicketEnd;
use towpath_transfer::Outcome;

/// Longest time for which whoever has another ticket for the same waits.
const OTHERS: Duration = Duration::from_secs(20);
/// Nothing came for so long: whoever asks goes elsewhere.
const STALLED: Duration = Duration::from_secs(20);
/// What could not be had is tried again after this.
const PAUSE: Duration = Duration::from_secs(5);
/// What is here is looked at again after this: it may have been evicted.
const CHECKED: Duration = Duration::from_secs(60);
/// Tickets by which something comes at once.
const MOST_COMING: usize = 64;
/// Tickets that are remembered, whatever became of them. What is here and was looked at longest ago is forgotten first: whoever
/// has a ticket for that has it looked for again.
const MOST: usize = 1024;

/// What a cache does for the machines of its site. Called by a connection's reader, which waits.
pub trait TicketCache: Send + Sync {
    /// Begins to fetch what `ticket` names, if whoever hands it over `may_begin` that and it is not done yet; says how far it is.
    fn bring(&self, ticket: &Ticket, may_begin: bool) -> Result<(), Outcome>;
}

/// What is to be done for whoever hands a ticket over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BringStep {
    /// Fetch it. It was all here once, by this very ticket, if that is said.
    Begin {
        /// See there.
        was_here: bool,
    },
    /// Whoever asks can draw on what is here.
    Draw,
    /// Whoever asks is to ask again.
    Later,
    /// Whoever asks goes elsewhere, for this reason.
    Refuse(String),
}

#[derive(Debug)]
enum BringStage {
    Coming { since: Instant, bytes: u64, grown: Instant, can_draw: bool },
    Here { checked: Instant },
    Failed { why: String, at: Instant },
}

#[derive(Debug)]
struct BroughtTicket {
    oid: Oid,
    stage: BringStage,
}

/// See the head of this module. Tickets go by the names of their records.
#[derive(Debug, Default)]
pub struct BroughtTickets(HashMap<Vec<u8>, BroughtTicket>);

impl BroughtTickets {
    /// The ticket of this name, for `oid`, is handed over.
    pub fn ask(&mut self, name: &[u8], oid: Oid, may_begin: bool, now: Instant) -> BringStep {
        let was_here = match self.0.get(name).map(|ticket| &ticket.stage) {
            Some(BringStage::Coming { grown, .. }) if now.duration_since(*grown) > STALLED => {
                return BringStep::Refuse("nothing of it comes to the cache".into());
            }
            Some(BringStage::Coming { can_draw: true, .. }) => return BringStep::Draw,
            Some(BringStage::Coming { .. }) => return BringStep::Later,
            Some(BringStage::Here { checked }) if !may_begin || now.duration_since(*checked) < CHECKED => {
                return BringStep::Draw;
            }
            Some(BringStage::Failed { why, at }) if now.duration_since(*at) < PAUSE => {
                return BringStep::Refuse(why.clone());
            }
            stage => matches!(stage, Some(BringStage::Here { .. })),
        };
        if !may_begin {
            return BringStep::Refuse("this node may not have the cache fetch anything".into());
        }
        // What one node would send is no other one's: the next one waits, but not long for one that may be slow.
        if let Some(since) = self.coming_since(oid) {
            return match now.duration_since(since) < OTHERS {
                true => BringStep::Later,
                false => BringStep::Refuse("it comes by another ticket, from a slow sender perhaps".into()),
            };
        }
        if self.coming().count() >= MOST_COMING {
            return BringStep::Refuse(format!("{MOST_COMING} other objects are on their way to the cache"));
        }
        self.make_room(now);
        let stage = BringStage::Coming { since: now, bytes: 0, grown: now, can_draw: false };
        self.0.insert(name.to_vec(), BroughtTicket { oid, stage });
        BringStep::Begin { was_here }
    }

    /// Since when an object comes by whatever ticket.
    fn coming_since(&self, oid: Oid) -> Option<Instant> {
        self.0.values().find_map(|ticket| match &ticket.stage {
            BringStage::Coming { since, .. } if ticket.oid == oid => Some(*since),
            _ => None,
        })
    }

    fn coming(&self) -> impl Iterator<Item = &BroughtTicket> {
        self.0.values().filter(|ticket| matches!(ticket.stage, BringStage::Coming { .. }))
    }

    /// Forgets what could not be had, if much is remembered, and then what is here.
    fn make_room(&mut self, now: Instant) {
        if self.0.len() < MOST {
            return;
        }
        let is_old = |at: &Instant| now.duration_since(*at) >= PAUSE;
        self.0.retain(|_, ticket| !matches!(&ticket.stage, BringStage::Failed { at, .. } if is_old(at)));
        let checked = |ticket: &BroughtTicket| match ticket.stage {
            BringStage::Here { checked } => Some(checked),
            _ => None,
        };
        let mut here: Vec<_> =
            self.0.iter().filter_map(|(name, ticket)| Some((checked(ticket)?, name.clone()))).collect();
        here.sort_unstable();
        let excess = (self.0.len() + 1).saturating_sub(MOST);
        here.iter().take(excess).for_each(|(_, name)| drop(self.0.remove(name)));
    }

    /// So many bytes have come by a ticket.
    pub fn grew(&mut self, name: &[u8], now_there: u64, now: Instant) {
        if let Some(BroughtTicket { stage: BringStage::Coming { bytes, grown, .. }, .. }) =
            self.0.get_mut(name)
            && *bytes != now_there
        {
            (*bytes, *grown) = (now_there, now);
        }
    }

    /// What comes by a ticket can be drawn on, or not any more.
    pub fn can_draw(&mut self, name: &[u8], can: bool) {
        if let Some(BroughtTicket { stage: BringStage::Coming { can_draw, .. }, .. }) = self.0.get_mut(name) {
            *can_draw = can;
        }
    }

    /// All that a ticket names is here, or it cannot be had.
    pub fn ended(&mut self, name: &[u8], oid: Oid, result: Result<(), String>, now: Instant) {
        let stage = match result {
            Ok(()) => BringStage::Here { checked: now },
            Err(why) => BringStage::Failed { why, at: now },
        };
        if !self.0.contains_key(name) {
            self.make_room(now);
        }
        self.0.insert(name.to_vec(), BroughtTicket { oid, stage });
    }

    /// Names of the tickets by which something comes.
    pub fn coming_names(&self) -> impl Iterator<Item = &[u8]> {
        let coming = self.0.iter().filter(|(_, ticket)| matches!(ticket.stage, BringStage::Coming { .. }));
        coming.map(|(name, _)| name.as_slice())
    }

    /// A ticket is not served any more.
    pub fn forget(&mut self, name: &[u8]) {
        self.0.remove(name);
    }
}

/// Refuses what no cache may keep for others, or need not: `own` is the cache's node, `over` the end of the ticket.
pub fn may_be_kept(ticket: &Ticket, own: &NodeId, over: Option<TicketEnd>) -> Result<(), &'static str> {
    match (over, ticket) {
        (Some(TicketEnd::Expired), _) => Err("the ticket has expired"),
        (Some(TicketEnd::Withdrawn), _) => Err("the ticket was taken back"),
        (Some(TicketEnd::Taken { .. }), _) => Err("the ticket is for others"),
        (None, ticket) if ticket.terms.no_swarm => {
            Err("the ticket does not let its holders pass on what they get")
        }
        (None, ticket) if ticket.enclosed.is_some() => Err("the ticket holds all of it"),
        (None, ticket) if ticket.node == *own => Err("it is this node's own ticket"),
        (None, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    const NAME: &[u8] = b"ticket";
    const OTHER: &[u8] = b"another ticket";

    struct Desk {
        tickets: BroughtTickets,
        start: Instant,
    }

    impl Desk {
        fn new() -> Self {
            Self { tickets: BroughtTickets::default(), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn ask(&mut self, seconds: u64) -> BringStep {
            let now = self.at(seconds);
            self.tickets.ask(NAME, Oid::of(b"root"), true, now)
        }

        fn ends(&mut self, seconds: u64, result: Result<(), String>) {
            let now = self.at(seconds);
            self.tickets.ended(NAME, Oid::of(b"root"), result, now);
        }
    }

    const BEGIN: BringStep = BringStep::Begin { was_here: false };

    #[test]
    fn one_begins_and_all_others_wait_and_draw() {
        let mut desk = Desk::new();
        assert_eq!([desk.ask(0), desk.ask(0), desk.ask(1)], [BEGIN, BringStep::Later, BringStep::Later]);
        desk.tickets.can_draw(NAME, true);
        assert_eq!(desk.ask(2), BringStep::Draw);
        desk.tickets.can_draw(NAME, false);
        assert_eq!(desk.ask(2), BringStep::Later, "another one has the same by another right");
        desk.ends(3, Ok(()));
        assert_eq!(desk.ask(4), BringStep::Draw);
        assert_eq!(desk.ask(64), BringStep::Begin { was_here: true }, "it may have been evicted");
    }

    #[test]
    fn what_does_not_come_is_had_elsewhere() {
        let mut desk = Desk::new();
        assert_eq!(desk.ask(0), BEGIN);
        let now = desk.at(15);
        desk.tickets.grew(NAME, 5, now);
        assert_eq!(desk.ask(30), BringStep::Later);
        desk.tickets.grew(NAME, 5, desk.start + Duration::from_secs(34));
        assert!(matches!(desk.ask(36), BringStep::Refuse(_)), "it did not grow");
        desk.ends(40, Err("the disk is full".into()));
        assert_eq!(desk.ask(41), BringStep::Refuse("the disk is full".into()));
        assert_eq!(desk.ask(46), BEGIN, "it is tried again");
    }

    #[test]
    fn who_may_not_use_the_cache_begins_nothing_and_draws_on_what_is_here() {
        let mut desk = Desk::new();
        let (root, now) = (Oid::of(b"root"), desk.at(0));
        assert!(matches!(desk.tickets.ask(NAME, root, false, now), BringStep::Refuse(_)));
        desk.ends(0, Ok(()));
        let later = desk.at(100);
        assert_eq!(desk.tickets.ask(NAME, root, false, later), BringStep::Draw);
    }

    #[test]
    fn the_same_object_by_another_ticket_waits_for_the_first() {
        let mut desk = Desk::new();
        let (root, now) = (Oid::of(b"root"), desk.at(0));
        assert_eq!(desk.ask(0), BEGIN);
        assert_eq!(desk.tickets.ask(OTHER, root, true, now), BringStep::Later);
        let (grown, later) = (desk.at(19), desk.at(21));
        desk.tickets.grew(NAME, 5, grown);
        assert!(
            matches!(desk.tickets.ask(OTHER, root, true, later), BringStep::Refuse(_)),
            "the first is slow"
        );
        desk.ends(1, Ok(()));
        assert_eq!(desk.tickets.ask(OTHER, root, true, now), BEGIN);
    }

    #[test]
    fn so_many_come_at_once_and_failures_are_forgotten() {
        let mut desk = Desk::new();
        let now = desk.at(0);
        let name = |at: usize| (at as u64).to_be_bytes();
        for at in 0..MOST_COMING {
            let oid = Oid::of(&name(at));
            assert_eq!(desk.tickets.ask(&name(at), oid, true, now), BEGIN);
        }
        assert!(matches!(desk.ask(0), BringStep::Refuse(_)));
        assert_eq!(desk.tickets.coming_names().count(), MOST_COMING);
        for at in 0..2 * MOST {
            desk.tickets.ended(&name(at), Oid::of(&name(at)), Err("gone".into()), now);
        }
        assert_eq!(desk.tickets.coming_names().count(), 0);
        assert_eq!(desk.ask(10), BEGIN);
        assert_eq!(desk.tickets.0.len(), 1);
    }

    #[test]
    fn what_is_here_is_forgotten_when_much_is_remembered() {
        let mut desk = Desk::new();
        let name = |at: usize| (at as u64).to_be_bytes();
        assert_eq!(desk.ask(0), BEGIN);
        for at in 0..2 * MOST {
            let now = desk.at(at as u64);
            desk.tickets.ended(&name(at), Oid::of(&name(at)), Ok(()), now);
            assert!(desk.tickets.0.len() <= MOST);
        }
        assert_eq!(desk.tickets.coming_names().collect::<Vec<_>>(), [NAME], "what comes is not forgotten");
        let now = desk.at(2 * MOST as u64);
        let mut ask = |at: usize| desk.tickets.ask(&name(at), Oid::of(&name(at)), true, now);
        assert_eq!(
            [ask(2 * MOST - 1), ask(0)],
            [BringStep::Draw, BEGIN],
            "the one looked at longest ago goes"
        );
    }

    #[test]
    fn a_cache_keeps_what_the_tickets_terms_let_it() {
        let (own, sender) = (NodeId([1; 32]), NodeId([2; 32]));
        let terms = Terms::default();
        let ticket = Ticket {
            oid: Oid::of(b"root"),
            node: sender,
            secret: Secret([7; 16]),
            hints: Vec::new(),
            terms,
            enclosed: None,
        };
        assert_eq!(may_be_kept(&ticket, &own, None), Ok(()));
        let kept_back = Ticket { terms: Terms { no_swarm: true, ..terms }, ..ticket.clone() };
        for (ticket, own, over) in [
            (&ticket, own, Some(TicketEnd::Expired)),
            (&ticket, own, Some(TicketEnd::Withdrawn)),
            (&ticket, sender, None),
            (&kept_back, own, None),
        ] {
            assert!(may_be_kept(ticket, &own, over).is_err(), "{over:?}");
        }
    }
}
