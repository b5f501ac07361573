//! [`Direct`] as a source: what it is asked for it asks of its peer, over the connections that stand or are dialled for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_protocol::callers::Answers;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::session::Question;
use towpath_protocol::wire::{Describe, oid_field};
use towpath_protocol::{Peer, PeerUse, Stall};
use towpath_transfer::offer::{EntrySink, EntryWant, OfferSource};
use towpath_transfer::source::{Backlog, Query, Sink, SourceState};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, FirstPiece, Outcome, Source, SourceId, Tag, Want,
};

use super::{Direct, LOOK_EVERY, PAUSE};
use crate::direct::apart::apart;
use crate::direct::entries::MeasuredEntries;
use crate::direct::slots::{Slot, Slots};
use crate::direct::unasked::UnaskedCall;

/// With more than this delivered and not written, more connections would bring nothing.
const MOST_BACKLOG: u64 = 4 << 20;

/// Time within which the peer of a connection that was found answers what an object is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes between two looks at such a connection that are pings alone.
const PING: u64 = 64;

impl Direct {
    /// Hands a ticket over for what it names to be fetched: `Ok` once that can be had from the peer.
    pub async fn hand_over(&self, ticket: Bytes, context: &Context) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        // Whether it can be asked so its hello says.
        peer.greeted().await;
        let (answers, _none) = mpsc::channel(1);
        let result = peer.ask(Question::Bring(ticket), Answers::Descriptions(answers)).await;
        self.ended(slot, &peer, result)
    }

    async fn ask_about(
        &self,
        query: Query,
        context: &Context,
        answers: mpsc::Sender<Description>,
    ) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        if query.recipe && !peer.has_recipes().await {
            return self.ended(slot, &peer, Err(Outcome::NotHere));
        }
        if query.samples && !peer.has_samples().await {
            return self.ended(slot, &peer, Err(Outcome::NotHere));
        }
        // Whoever is asked no more than what an object is has the answer at once.
        let is_quick = slot.is_found() && !query.recipe && !query.samples && !query.follow;
        let silent = async {
            match is_quick {
                true => until_silent(&peer).await,
                false => std::future::pending().await,
            }
        };
        let question = Question::Describe(describe(context, &query));
        let closed = answers.clone();
        let asking = peer.ask(question, Answers::Descriptions(answers));
        match query.first {
            FirstPiece::Unsaid => {}
            FirstPiece::Wanted => peer.get_ahead(&context.root, &query.oid, true),
            FirstPiece::MayBeHere => peer.get_ahead(&context.root, &query.oid, false),
        }
        tokio::select! {
            result = asking => self.ended(slot, &peer, result),
            () = closed.closed() => Ok(()),
            () = silent => {
                self.shun(slot);
                Err(Outcome::RetryLater(PAUSE))
            }
        }
    }

    /// After a request: a connection that held resets the wait for the next one.
    pub(super) fn ended(&self, slot: &Slot, peer: &Peer, result: Result<(), Outcome>) -> Result<(), Outcome> {
        let ended = peer.ended();
        let is_over = ended.is_some();
        self.note(slot, ended);
        result.map_err(|outcome| match outcome {
            Outcome::RetryLater(_) if is_over => Outcome::RetryLater(PAUSE),
            other => other,
        })
    }

    async fn bring(&self, slot: &Slot, wants: Vec<Want>, context: &Context, sink: Arc<dyn Sink>) {
        let waiting = self.unasked.wait(&wants);
        let peer = match self.peer(slot, context).await {
            Ok(peer) => peer,
            Err(outcome) => return wants.iter().for_each(|want| sink.outcome(want.tag, outcome.clone())),
        };
        let given_up = CancellationToken::new();
        let _end = given_up.clone().drop_guard();
        let sink: Arc<dyn Sink> =
            Arc::new(SlotSink { inner: sink, slots: Arc::clone(&self.slots), given_up });
        if slot.is_found() {
            let (sink, handing_on) = apart(sink, wants.len());
            let asking = self.ask_for(&peer, (waiting, wants), context, sink);
            let asking = async {
                tokio::select! {
                    () = asking => {}
                    () = until_stalled(&peer) => self.shun(slot),
                }
            };
            tokio::join!(asking, handing_on);
        } else {
            self.ask_for(&peer, (waiting, wants), context, sink).await;
        }
        self.asked(slot, &peer).await;
    }

    /// Asks for wants that waited for the connection, and waits until each has ended.
    async fn ask_for(
        &self,
        peer: &PeerUse,
        (waiting, mut wants): (UnaskedCall<'_>, Vec<Want>),
        context: &Context,
        sink: Arc<dyn Sink>,
    ) {
        let claimed = peer.claim(&mut wants, &sink);
        // Only runs of bytes wait for the peer's hello.
        let is_run = |want: &Want| want.origin.is_some() || want.part.is_some() || want.base.is_some();
        let by_bytes = wants.iter().any(is_run) && peer.has_recipes().await;
        for want in waiting.end(&mut wants) {
            sink.outcome(want.tag, Outcome::Cancelled);
        }
        if !peer.greeting().has_deltas {
            let is_guess = |want: &mut Want| want.base.as_ref().is_some_and(|base| base.request.is_guess);
            wants.extract_if(.., is_guess).for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            wants.iter_mut().for_each(|want| want.base = None);
        }
        let requests = GetRequest::all(&context.root, wants, by_bytes).into_iter();
        let asked = join_all(requests.map(|request| peer.get(request, Arc::clone(&sink))));
        tokio::join!(asked, async {
            if let Some(claimed) = claimed {
                claimed.await;
            }
        });
    }

    /// After wants were asked for on a connection: whether it still stands.
    async fn asked(&self, slot: &Slot, peer: &Peer) {
        let ended = peer.ended();
        let stands = ended.is_none();
        self.note(slot, ended);
        if stands {
            slot.proved_useful().await;
        }
    }

    /// A connection that was found brings nothing: the next one is dialled, and only if that can't be the found one is tried again.
    fn shun(&self, slot: &Slot) {
        self.shuns.store(true, Ordering::Relaxed);
        slot.release();
    }

    /// A connection that stands, if there is one.
    async fn standing(&self, slot: &Slot) -> Option<Arc<PeerUse>> {
        // Somebody may be dialling.
        let _dialling = slot.dialling.lock().await;
        let peer = slot.peer();
        if peer.is_none()
            && let Some(why) = slot.take_lost()
        {
            self.note(slot, Some(why));
        }
        peer
    }
}

/// Sink of a connection, on the way to the session.
struct SlotSink {
    inner: Arc<dyn Sink>,
    slots: Arc<Slots>,
    /// The call is over or was dropped: nobody waits for its sink, which would hold up the whole connection.
    given_up: CancellationToken,
}

impl Sink for SlotSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let bytes = delivery.payload.bytes();
        if !bytes.is_empty() {
            let is_waiting = self.inner.backpressure().writer_backlog <= MOST_BACKLOG;
            self.slots.arrived(bytes.len() as u64, is_waiting, Instant::now());
        }
        Box::pin(async move {
            let _ = self.given_up.run_until_cancelled(self.inner.deliver(delivery)).await;
        })
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.inner.partial_piece(delivery);
    }

    /// A lost connection ends wants as "retry now"; asking again at once would spin while the peer
    /// is away.
    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::RetryLater(delay) => Outcome::RetryLater(delay.max(PAUSE)),
            other => other,
        };
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

impl Source for Direct {
    fn name(&self) -> &str {
        "direct"
    }

    /// It dials with TLS only; one that uses what stands asks that.
    fn state(&self) -> SourceState {
        SourceState {
            path: self.path(),
            trouble: lock(&self.last_error).clone(),
            is_encrypted: self.slots.peers().all(|peer| peer.is_encrypted()),
            makes_deltas: true,
            price: self.price(),
            ..SourceState::of_window(self.slots.window())
        }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(self.ask_about(query, context, answers))
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let hands = self.slots.deal(wants);
        Box::pin(async move {
            let calls = hands.into_iter().map(|(slot, outstanding, wants)| {
                let sink = Arc::clone(&sink);
                async move {
                    self.bring(slot, wants, context, sink).await;
                    drop(outstanding);
                }
            });
            tokio::select! {
                _ = join_all(calls) => {}
                () = self.open_ahead(context) => {}
            }
        })
    }

    /// These wants are cancelled and no others; one that shares a run of bytes with others that are needed comes with them.
    fn cancel(&self, tags: &[Tag]) {
        if tags.is_empty() {
            return;
        }
        self.unasked.cancel(tags);
        for peer in self.slots.peers() {
            peer.cancel(tags);
        }
    }

    /// A connection that was found, that others use, or over which the peer fetches, is left to them.
    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let ends = self.slots.take_all().into_iter().map(|(peer, is_found)| async move {
                match is_found || peer.has_others() || *peer.served().use_changes().borrow() {
                    true => peer.leave(how),
                    false => peer.finish(how).await,
                }
            });
            join_all(ends).await;
        })
    }

    fn report_corrupt(&self, source: &SourceId) {
        let is_this_way = source.path() == self.config.peer.way.as_deref();
        for peer in self.slots.peers().filter(|_| is_this_way) {
            if source.node() == Some(&peer.node()) {
                peer.close("the peer sent what does not match its hash");
            }
        }
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(peer) = self.peer(self.slots.idlest(), context).await else { return };
            let query = Query { follow: true, ..Query::about(oid) };
            let question = Question::Watch(describe(context, &query));
            let closed = ranges.clone();
            tokio::select! {
                _ = peer.ask(question, Answers::Ranges(ranges)) => {}
                () = closed.closed() => {}
            }
        })
    }
}

/// Asks over a connection that stands: nothing is dialled for an offer.
impl OfferSource for Direct {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move {
            let (slot, _outstanding) = self.slots.for_entries(wants.len());
            let Some(peer) = self.standing(slot).await else { return wants };
            peer.get_entries(wants, Arc::new(MeasuredEntries::new(sink, Arc::clone(&self.slots)))).await;
            self.asked(slot, &peer).await;
            Vec::new()
        })
    }
}

/// Completes when nothing comes on a connection though it is due.
async fn until_stalled(peer: &Peer) {
    let (mut stall, mut ticks) = (Stall::default(), tokio::time::interval(LOOK_EVERY));
    loop {
        ticks.tick().await;
        let heard = peer.heard();
        if stall.look(Instant::now(), heard.bytes, PING, heard.awaits_data).is_some() {
            return;
        }
    }
}

/// Completes when the peer of a connection that was found has not answered for long: other transfers may have asked before.
async fn until_silent(peer: &PeerUse) {
    loop {
        let before = peer.heard().bytes;
        tokio::time::sleep(PATIENCE).await;
        if !peer.has_others() || peer.heard().bytes.saturating_sub(before) <= PING {
            return;
        }
    }
}

/// The message of a question, but for its number.
fn describe(context: &Context, query: &Query) -> Describe {
    Describe {
        request: 0,
        root: oid_field(&context.root),
        oid: oid_field(&query.oid),
        block: query.coverage.map(|coverage| coverage.block),
        values_from: query.proofs.as_ref().map(|run| run.start),
        values_to: query.proofs.as_ref().map_or(0, |run| run.end),
        follow: query.follow,
        recipe: query.recipe,
        samples: query.samples,
    }
}
