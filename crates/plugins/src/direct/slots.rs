//! The connections to one peer: places for as many as there may be, of which the first few are in
//! use, as many as [`Widening`] says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use towpath_content::lock::lock;
use towpath_link::PathInfo;
use towpath_link::backoff::BackoffConfig;
use towpath_transfer::Want;

use towpath_link::dialling::Dialling;
use towpath_protocol::{Peer, PeerUse};

use super::attempt::SlotDialling;
use super::entries::GUESS;
use super::long_path::LongPath;
use super::path_growth::PathLook;
use super::widening::{PathCounts, Widening};

/// Bytes to keep outstanding until the peer suggests better.
const FIRST_WINDOW: u64 = 4 << 20;
/// The same on a further connection: it begins slowly, and what was asked there is not asked where it would come soon.
const FURTHER_WINDOW: u64 = 512 << 10;
/// The same at most on a connection that was found.
const FOUND_WINDOW: u64 = 16 << 20;
/// Bytes of wants that stay together when they are dealt out to several connections.
const RUN: u64 = 256 << 10;
/// The longest wait between attempts to reach a peer.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// All places for connections.
pub struct Slots {
    all: Vec<Slot>,
    width: Mutex<SlotWidth>,
    /// How many are to stand: those in use, and some ahead.
    wanted: watch::Sender<usize>,
    /// Somebody else brings connections; else they are dialled when they are asked, or ahead.
    are_brought: bool,
}

/// How many places are in use, and why.
struct SlotWidth {
    widening: Widening,
    long_path: LongPath,
}

impl SlotWidth {
    /// Bytes came; see [`LongPath::arrived`].
    fn look(&mut self, bytes: u64, is_waiting: bool, now: Instant, path: impl Fn() -> PathLook) {
        let before = self.long_path.needed();
        self.long_path.arrived(bytes, is_waiting, now, path);
        self.widening.needs(self.long_path.needed(), before, now);
    }

    /// Connections that are to stand.
    fn wanted(&self) -> usize {
        self.widening.width().max(self.long_path.ahead())
    }
}

/// One connection, or the wait for the next attempt.
pub struct Slot {
    /// Held while one caller dials and others wait for it.
    pub dialling: tokio::sync::Mutex<SlotDialling>,
    /// Bytes of wants asked on it.
    outstanding: AtomicU64,
    current: Mutex<Option<SlotPeer>>,
}

/// A connection in use.
#[derive(Clone)]
struct SlotPeer {
    peer: Arc<PeerUse>,
    /// It was not dialled for this transfer.
    is_found: bool,
}

impl Slots {
    /// For `first` connections, and `most` if more of them bring more.
    pub fn new(first: usize, most: usize) -> Self {
        let width = SlotWidth { widening: Widening::new(first, most), long_path: LongPath::new(most) };
        let all = (0..most.max(first).max(1)).map(|_| Slot::new()).collect();
        let wanted = watch::Sender::new(width.wanted());
        Self { all, width: Mutex::new(width), wanted, are_brought: false }
    }

    /// The same, of which one stands and others are brought.
    pub fn standing(peer: Arc<Peer>, first: usize, most: usize) -> Self {
        let slots = Self { are_brought: true, ..Self::new(first, most) };
        slots.all[0].set(Arc::new(PeerUse::lent(peer)), false);
        slots
    }

    /// True if somebody else brings connections: none is dialled here.
    pub const fn are_brought(&self) -> bool {
        self.are_brought
    }

    /// Connections that are to stand.
    pub fn wanted(&self) -> watch::Receiver<usize> {
        self.wanted.subscribe()
    }

    /// Further connections that are wanted and do not stand.
    pub fn lacks(&self) -> usize {
        self.missing().count()
    }

    /// Places of these. Where the first connection was found nobody knows whether more can be dialled.
    pub fn missing(&self) -> impl Iterator<Item = &Slot> {
        let wanted = if self.all[0].is_found() { 1 } else { lock(&self.width).wanted() };
        self.all.iter().take(wanted).skip(1).filter(|slot| slot.peer().is_none())
    }

    /// Takes in a further connection that was brought; false if none is wanted.
    pub fn join(&self, peer: Arc<Peer>) -> bool {
        let state = lock(&self.width);
        let further = self.all.iter().take(state.wanted()).skip(1);
        let free = { further }.find(|slot| slot.peer().is_none());
        free.map(|slot| slot.set(Arc::new(PeerUse::lent(peer)), false)).is_some()
    }

    /// Those in use. Where the first connection was found nobody knows whether more can be dialled; where they are brought
    /// none is waited for.
    fn used(&self) -> &[Slot] {
        let width = if self.all[0].is_found() { 1 } else { lock(&self.width).widening.width() };
        let wanted = &self.all[..width.min(self.all.len())];
        if !self.are_brought() {
            return wanted;
        }
        let missing = wanted.iter().skip(1).position(|slot| slot.peer().is_none());
        &wanted[..missing.map_or(wanted.len(), |further| further + 1)]
    }

    /// True if it is the first place.
    pub fn is_first(&self, slot: &Slot) -> bool {
        std::ptr::eq(slot, &self.all[0])
    }

    /// Takes out all connections, each with whether it was found.
    pub fn take_all(&self) -> Vec<(Arc<PeerUse>, bool)> {
        let taken = self.all.iter().filter_map(Slot::close);
        taken.map(|current| (current.peer, current.is_found)).collect()
    }

    /// The one in use with the least to do.
    pub fn idlest(&self) -> &Slot {
        let outstanding = |slot: &&Slot| slot.outstanding.load(Ordering::Relaxed);
        self.used().iter().min_by_key(outstanding).unwrap_or(&self.all[0])
    }

    /// Deals wants out to the connections in use, in runs that are read in one go, each to the one
    /// with the least to do for what it carries.
    pub fn deal(&self, wants: Vec<Want>) -> Vec<(&Slot, Outstanding<'_>, Vec<Want>)> {
        let used = self.used();
        let mut hands: Vec<Vec<Want>> = used.iter().map(|_| Vec::new()).collect();
        let mut loads: Vec<u64> = used.iter().map(|slot| slot.outstanding.load(Ordering::Relaxed)).collect();
        let windows = self.windows();
        let (mut to, mut run) = (0, RUN);
        for want in wants {
            if run >= RUN {
                to = least_loaded(&loads, &windows);
                run = 0;
            }
            run += want.missing_len();
            loads[to] += want.missing_len();
            hands[to].push(want);
        }
        let hands = used.iter().zip(hands).filter(|(_, hand)| !hand.is_empty());
        hands.map(|(slot, hand)| (slot, Outstanding::new(slot, &hand), hand)).collect()
    }

    /// The connection for so many entries, which count as outstanding there. How much they will need nobody knows.
    pub fn for_entries(&self, count: usize) -> (&Slot, Outstanding<'_>) {
        let slot = self.idlest();
        (slot, Outstanding::of_bytes(slot, count as u64 * GUESS))
    }

    /// The path, with the shortest round trip of the first connection.
    fn path(&self) -> PathLook {
        let path = self.all[0].peer().and_then(|peer| peer.path());
        let heard = self.peers().map(|peer| peer.heard().bytes).sum();
        PathLook { round_trip: path.map_or(Duration::ZERO, |path| path.min_rtt), heard }
    }

    /// All connections that stand.
    pub fn peers(&self) -> impl Iterator<Item = Arc<PeerUse>> {
        self.all.iter().filter_map(Slot::peer)
    }

    /// Bytes to keep outstanding: on those in use, and what still comes over others, for which those in use are not
    /// to wait.
    pub fn window(&self) -> u64 {
        let windows = self.windows();
        let others = self.all[windows.len()..].iter().map(|slot| slot.outstanding.load(Ordering::Relaxed));
        windows.iter().sum::<u64>() + others.sum::<u64>()
    }

    /// Bytes to keep outstanding on each of those in use.
    fn windows(&self) -> Vec<u64> {
        let suggested = |(at, slot): (usize, &Slot)| match slot.peer().map_or(0, |peer| peer.suggested()) {
            0 if at == 0 => FIRST_WINDOW,
            0 => FURTHER_WINDOW,
            // All of it may have to wait in memory.
            suggested if slot.is_found() => suggested.min(FOUND_WINDOW),
            suggested => suggested,
        };
        self.used().iter().enumerate().map(suggested).collect()
    }

    /// Counts of all open connections.
    fn counted(&self) -> PathCounts {
        let paths: Vec<PathInfo> = self.peers().map(|peer| peer.path().unwrap_or_default()).collect();
        PathCounts::of(&paths, self.peers().any(|peer| peer.greeting().paces))
    }

    /// Bytes came; see [`Widening::arrived`]. What is no longer in use closes when what was asked
    /// there has ended.
    pub fn arrived(&self, bytes: u64, is_waiting: bool, now: Instant) {
        if self.all[0].is_found() {
            return;
        }
        let mut state = lock(&self.width);
        let before = state.widening.width();
        state.look(bytes, is_waiting, now, || self.path());
        // Bytes that still come over those no longer in use have their part of the network.
        let is_alone = self.all.iter().skip(before).all(|slot| slot.outstanding.load(Ordering::Relaxed) == 0);
        state.widening.arrived(bytes, is_waiting && is_alone, now, || self.counted());
        let (width, wanted) = (state.widening.width(), state.wanted());
        drop(state);
        if width != before {
            tracing::debug!(connections = width, "another number of connections");
        }
        self.wanted.send_if_modified(|told| {
            if wanted < *told {
                self.all.iter().skip(wanted).for_each(|slot| drop(slot.close()));
            }
            std::mem::replace(told, wanted) != wanted
        });
    }
}

/// The connection that has the least outstanding for what it is to have.
fn least_loaded(loads: &[u64], windows: &[u64]) -> usize {
    let share =
        |at: usize| loads[at] as f64 / windows.get(at).copied().unwrap_or(FURTHER_WINDOW).max(1) as f64;
    (0..loads.len()).min_by(|&one, &other| share(one).total_cmp(&share(other))).unwrap_or(0)
}

impl Slot {
    fn new() -> Self {
        let backoff = BackoffConfig { longest: LONGEST_WAIT, ..BackoffConfig::default() };
        Self {
            dialling: tokio::sync::Mutex::new(SlotDialling {
                backoff: Dialling::new(backoff),
                attempt: None,
            }),
            outstanding: AtomicU64::new(0),
            current: Mutex::default(),
        }
    }

    fn current(&self) -> Option<SlotPeer> {
        lock(&self.current).clone().filter(|current| current.peer.ended().is_none())
    }

    /// The connection, if it stands.
    pub fn peer(&self) -> Option<Arc<PeerUse>> {
        self.current().map(|current| current.peer)
    }

    /// True if it stands and was not dialled for this transfer.
    pub fn is_found(&self) -> bool {
        self.current().is_some_and(|current| current.is_found)
    }

    /// From now on this is the connection.
    pub fn set(&self, peer: Arc<PeerUse>, is_found: bool) {
        *lock(&self.current) = Some(SlotPeer { peer, is_found });
    }

    /// Leaves the connection.
    pub fn release(&self) {
        lock(&self.current).take();
    }

    /// Leaves the connection, and ends an attempt that nobody waits for.
    fn close(&self) -> Option<SlotPeer> {
        if let Ok(mut dialling) = self.dialling.try_lock() {
            dialling.attempt = None;
        }
        lock(&self.current).take()
    }

    /// Forgets a connection that ended; returns why it did.
    pub fn take_lost(&self) -> Option<String> {
        lock(&self.current).take().and_then(|current| current.peer.ended())
    }

    /// Notes that what was requested here came.
    pub async fn proved_useful(&self) {
        self.dialling.lock().await.backoff.useful();
    }
}

/// Bytes of wants asked on a slot, until they have ended or were given up.
pub struct Outstanding<'a> {
    slot: &'a Slot,
    bytes: u64,
}

impl<'a> Outstanding<'a> {
    fn new(slot: &'a Slot, wants: &[Want]) -> Self {
        Self::of_bytes(slot, wants.iter().map(|want| want.missing_len()).sum())
    }

    fn of_bytes(slot: &'a Slot, bytes: u64) -> Self {
        slot.outstanding.fetch_add(bytes, Ordering::Relaxed);
        Self { slot, bytes }
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.slot.outstanding.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::NodeId;
    use towpath_content::chunking::ChunkHash;
    use towpath_link::doubles::connected;
    use towpath_protocol::PeerConfig;
    use towpath_transfer::WantId;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn wants(count: u64) -> Vec<Want> {
        let id = WantId::Chunk { hash: ChunkHash::of(b"any").0, len: RUN as u32 };
        let want = |tag| {
            let (positions, group) = (Vec::new(), Arc::default());
            Want { positions, group, ..Want::new(tag, id) }
        };
        (0..count).map(want).collect()
    }

    /// One of two connections was no longer in use, and had half of a slow network until what was asked there had come: the
    /// other one's rate was taken for all there is, and so the next two for worth it, and then four and eight.
    #[test]
    fn nothing_is_measured_while_something_comes_over_a_connection_that_is_not_in_use() {
        let (slots, start) = (Slots::new(1, 2), Instant::now());
        let most = |seconds: std::ops::Range<u64>| {
            let ticks = seconds.start * 100..seconds.end * 100;
            let widths = ticks.map(|tick| {
                slots.arrived(1000, true, start + Duration::from_millis(10 * tick));
                slots.used().len()
            });
            widths.max()
        };
        let rest = Outstanding::new(&slots.all[1], &wants(1));
        assert_eq!(most(0..20), Some(1));
        drop(rest);
        assert_eq!(most(20..22), Some(2), "where nobody can tell what was lost it is tried");
    }

    #[tokio::test]
    async fn of_connections_that_are_brought_those_that_stand_are_used() {
        let mut ends = Vec::new();
        let mut peer = async || {
            let [near, far] = connected([NodeId([7; 32]); 2]).await;
            ends.push(far);
            Peer::start(near, PeerConfig::default(), None)
        };
        let slots = Slots::standing(peer().await, 3, 4);
        let counts = || (slots.used().len(), slots.lacks());
        assert_eq!(counts(), (1, 2));
        let second = peer().await;
        assert!(slots.join(Arc::clone(&second)));
        assert_eq!(counts(), (2, 1));
        assert!(slots.join(peer().await));
        assert!(!slots.join(peer().await), "no more are wanted");
        assert_eq!(counts(), (3, 0));
        second.close("lost");
        second.closed().await;
        assert_eq!(counts(), (1, 1));
        assert!(slots.join(peer().await));
        assert_eq!(counts(), (3, 0));
    }

    #[test]
    fn a_connection_is_given_as_much_as_it_carries() {
        assert_eq!(least_loaded(&[0, 0], &[1024, 1024]), 0);
        assert_eq!(least_loaded(&[1, 0], &[1024, 1024]), 1);
        // Half of the one's share is under way, and all of the other's.
        assert_eq!(least_loaded(&[2048 * KIB, 512 * KIB], &[4096 * KIB, 512 * KIB]), 0);
        assert_eq!(least_loaded(&[4096 * KIB, 256 * KIB], &[4096 * KIB, 512 * KIB]), 1);
    }

    #[tokio::test]
    async fn entries_go_over_all_connections_by_turns() {
        let mut ends = Vec::new();
        let mut peer = async || {
            let [near, far] = connected([NodeId([7; 32]); 2]).await;
            ends.push(far);
            Peer::start(near, PeerConfig::default(), None)
        };
        let slots = Slots::standing(peer().await, 2, 4);
        assert!(slots.join(peer().await));
        let calls: Vec<_> = (0..9).map(|_| slots.for_entries(32)).collect();
        let by_first = calls.iter().filter(|(slot, _)| slots.is_first(slot)).count();
        assert_eq!(by_first, 5);
        drop(calls);
        assert!(slots.is_first(slots.for_entries(1).0));
    }

    #[test]
    fn a_connection_that_is_dropped_keeps_nothing_from_the_others() {
        let slots = Slots::new(2, 2);
        assert_eq!(slots.window(), FIRST_WINDOW + FURTHER_WINDOW);
        let dealt = slots.deal(wants(18));
        let shares: Vec<u64> = dealt.iter().map(|(_, _, wants)| wants.len() as u64 * RUN).collect();
        assert_eq!(shares, [FIRST_WINDOW, FURTHER_WINDOW], "as many as each is to have");

        let slots = Slots::new(1, 2);
        let late = Outstanding::new(&slots.all[1], &wants(4));
        assert_eq!(slots.window(), FIRST_WINDOW + 4 * RUN, "what is late there is not counted here");
        drop(late);
        assert_eq!(slots.window(), FIRST_WINDOW);
    }
}
