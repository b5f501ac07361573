//! Several sources as one: what [`towpath_dealer`] decides is done here. Whoever asks sees one network.
//!
//! | module | story |
//! |---|---|
//! | this one | [`Many`]: the source |
//! | `table` | the wants that are out, the sources, and the dealer between them: messages in, messages out |
//! | `call` | a call of whoever wants something, and whether its sink keeps up |
//! | `asking` | a call of one source, and the sink of what it brings |
//! | `lone` | a call of the only source there is, until another joins |
//! | `coming` | what the site's cache has by now |
//! | `finding` | sources that finders bring and take away |
//! | `open` | sources that count |
//! | `places` | what was found and is not open yet: pure |
//! | `to_come` | how much is likely to be wanted later: pure |
//! | `describing` | questions: the first source that answers |
//!
//! Those that are there from the start are wrapped; others come from finders, such as the one of
//! the nodes that the transfer's hints name. Such a one is asked about the root first, and counts once it has answered.

mod asking;
mod call;
mod coming;
#[cfg(test)]
mod cuts;
mod describing;
mod finding;
mod lone;
mod open;
mod places;
mod table;
mod to_come;

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_transfer::finder::Finder;
use towpath_transfer::source::{PathState, Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, SourceId, Tag, Want};

use self::call::DealtCall;
use self::lone::{LoneCall, LoneCalls};
use self::table::{SourceOrder, SourceTable};
use crate::asking_order::to_ask;
use crate::having;
use crate::near::NearSource;

/// Window before any source tells its own.
const FIRST_WINDOW: u64 = 4 << 20;
/// Bytes beside the window that nobody is asked for yet, at most.
const MOST_SPARE: u64 = 8 << 20;
/// Longest time for which a question waits for a source that may be found, before the others are asked again.
const WAIT_FOR_FOUND: Duration = Duration::from_secs(1);
/// Longest time without a look at the clock while anything is out.
const TICK: Duration = Duration::from_millis(50);

/// See the head of this module.
pub struct Many {
    shared: Arc<SourceCalls>,
    /// Held by the one call that looks at the clock for all.
    clock: tokio::sync::Mutex<()>,
    _end: tokio_util::sync::DropGuard,
}

/// State of the source and of the calls that it makes.
struct SourceCalls {
    table: Mutex<SourceTable>,
    lone: LoneCalls,
    since: Instant,
    finders: Vec<Arc<dyn Finder>>,
    /// The site's cache, with its number, if there is one.
    near: Option<(u32, NearSource)>,
    has_started: AtomicBool,
    /// Told when a finder has looked, or a place has answered.
    found: Notify,
    token: CancellationToken,
}

impl Many {
    /// Draws from `sources`, of which each has all that can be asked for, and from those that
    /// `finders` find.
    pub fn new(sources: Vec<Arc<dyn Source>>, finders: Vec<Arc<dyn Finder>>) -> Self {
        Self::behind(None, sources, finders)
    }

    /// The same with the site's cache in front, if there is one: all others are its reserve.
    pub fn behind(
        near: Option<NearSource>,
        sources: Vec<Arc<dyn Source>>,
        finders: Vec<Arc<dyn Finder>>,
    ) -> Self {
        let token = CancellationToken::new();
        let mut table = SourceTable::new(random());
        let near = near.map(|near| {
            let number = table.add(Duration::ZERO, Arc::clone(&near.source), Some(near.holding));
            (number, near)
        });
        let (table, since, has_started) = (Mutex::new(table), Instant::now(), AtomicBool::new(false));
        let (lone, found, of_calls) = (LoneCalls::default(), Notify::new(), token.clone());
        let shared =
            Arc::new(SourceCalls { table, lone, since, finders, near, has_started, found, token: of_calls });
        for source in sources {
            lock(&shared.table).add(shared.now(), source, None);
        }
        Self { shared, clock: tokio::sync::Mutex::default(), _end: token.drop_guard() }
    }

    /// The same, which asks nothing of two sources at once.
    #[must_use]
    pub fn asking_once(self) -> Self {
        lock(&self.shared.table).dealer.ask_once();
        self
    }

    /// From the first question or call on the finders look for sources, and those that are there open their ways.
    fn start(&self, context: &Context) {
        if self.shared.has_started.swap(true, Ordering::AcqRel) {
            return;
        }
        for (at, source) in self.shared.sources().into_iter().enumerate() {
            let context = context.clone();
            self.shared.spawn(async move {
                // The first one is asked now anyway.
                if at == 0 {
                    asking::until_lost(&source).await;
                }
                asking::keep_warm(&source, &context).await;
            });
        }
        if let Some((number, near)) = self.shared.near.clone() {
            let (shared, context) = (Arc::clone(&self.shared), context.clone());
            self.shared.spawn(async move { coming::follow(&shared, number, &near, &context).await });
        }
        lock(&self.shared.table).places.look(self.shared.now(), self.shared.finders.len());
        for (number, finder) in self.shared.finders.iter().enumerate() {
            let (shared, finder, context) = (Arc::clone(&self.shared), Arc::clone(finder), context.clone());
            let mut finding =
                Box::pin(async move { finding::find(&shared, number, &*finder, &context).await });
            // What a finder knows at once counts from the first call on.
            let now = finding.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
            if now.is_pending() {
                self.shared.spawn(finding);
            }
        }
    }

    /// Looks at the clock while any call is under way.
    async fn keep_time(&self, context: &Context) {
        let _turn = self.clock.lock().await;
        loop {
            let now = self.shared.now();
            let wake = lock(&self.shared.table).wake(now).map_or(TICK, |wake| wake.saturating_sub(now));
            tokio::time::sleep(wake.clamp(Duration::from_millis(1), TICK)).await;
            lock(&self.shared.table).tick(self.shared.now());
            self.shared.perform(context);
        }
    }
}

impl SourceCalls {
    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// Does what the table wants done.
    fn perform(self: &Arc<Self>, context: &Context) {
        let orders = lock(&self.table).take_orders();
        for order in orders {
            match order {
                SourceOrder::Ask { number, source, wants, after } => {
                    let (shared, context) = (Arc::clone(self), context.clone());
                    self.spawn(
                        async move { asking::ask(&shared, number, &source, wants, after, &context).await },
                    );
                }
                SourceOrder::Cancel { source, tags } => source.cancel(&tags),
                SourceOrder::Open { number, source } => {
                    let (shared, context) = (Arc::clone(self), context.clone());
                    self.spawn(async move { asking::open(&shared, number, &source, &context).await });
                    self.found.notify_waiters();
                }
                SourceOrder::End { awaited, tag, outcome } => awaited.end(tag, outcome),
                SourceOrder::Close { source, why } => self.spawn(async move { source.finish(why).await }),
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        tokio::spawn(async move {
            let _ = token.run_until_cancelled(task).await;
        });
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        lock(&self.table).open.all()
    }

    /// Sources that a question goes to, and the numbers of all that are open.
    fn asked_and_open(&self) -> (Vec<Arc<dyn Source>>, Vec<u32>) {
        let table = lock(&self.table);
        (to_ask(&table.open.by_standing()), table.open.numbers().collect())
    }

    /// Those that were opened after those of these numbers, or are being opened. They are noted.
    fn opened_after(&self, known: &mut Vec<u32>) -> Vec<Arc<dyn Source>> {
        let table = lock(&self.table);
        let open = table.open.numbers().filter_map(|number| Some((number, table.open.get(number)?)));
        let new = open.chain(table.places.asked()).filter(|(number, _)| !known.contains(number));
        let (new, opened): (Vec<u32>, Vec<_>) = new.unzip();
        known.extend(new);
        // Beside those who can tell, plain copies are not asked.
        opened.into_iter().filter(|source| source.state().proves).collect()
    }

    /// A call of the source that is alone, if one is: there is nothing to deal out.
    fn lone(
        self: &Arc<Self>,
        wants: &[Want],
        context: &Context,
        sink: &Arc<dyn Sink>,
    ) -> Option<Arc<LoneCall>> {
        let table = lock(&self.table);
        let call = LoneCall::new(self, table.only()?, wants, context, Arc::clone(sink));
        self.lone.add(&call);
        Some(call)
    }
}

/// What several sources together are to be given, of which they like to have `window` under way. Whoever hands out wants waits until
/// there is room for many. If nothing waited here meanwhile, a fast source would borrow from a slow one in mid-transfer, and what
/// the slow one brings would come twice.
fn with_spare(window: u64) -> u64 {
    window + (window / 2).min(MOST_SPARE)
}

impl Source for Many {
    fn name(&self) -> &str {
        "dealer"
    }

    fn state(&self) -> SourceState {
        let table = lock(&self.shared.table);
        let (only, window, sources) = (table.only(), table.window(), table.open.all());
        drop(table);
        if let Some((_, only)) = only {
            return only.state();
        }
        let states = sources.iter().map(|source| source.state());
        let all = states.reduce(joined).unwrap_or_else(|| SourceState::of_window(FIRST_WINDOW));
        SourceState { window: window.map_or(FIRST_WINDOW, with_spare), ..all }
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        let sources = self.shared.sources();
        Box::pin(async move {
            futures_util::future::join_all(sources.iter().map(|source| source.finish(how))).await;
        })
    }

    fn report_corrupt(&self, source: &SourceId) {
        lock(&self.shared.table).corrupt(self.shared.now(), source);
        self.shared.sources().iter().for_each(|each| each.report_corrupt(source));
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.start(context);
        Box::pin(async move {
            let mut found = pin!(self.shared.found.notified());
            found.as_mut().enable();
            let (sources, before) = self.shared.asked_and_open();
            // Plain copies of the bytes can't tell. Who can may just be opened.
            let are_copies = sources.iter().all(|source| !source.state().proves);
            if are_copies && lock(&self.shared.table).places.may_find(self.shared.now()) {
                let _ = tokio::time::timeout(WAIT_FOR_FOUND, found).await;
                return Err(Outcome::RetryLater(Duration::ZERO));
            }
            let new = describing::NewSources::after(&self.shared, before.clone());
            let result = describing::describe(sources, new, query, context, answers).await;
            if result != Err(Outcome::NotHere) {
                return result;
            }
            let (has_new, may_be_found) = {
                let table = lock(&self.shared.table);
                let has_new = table.open.numbers().any(|number| !before.contains(&number));
                (has_new, table.places.may_find(self.shared.now()))
            };
            // One that was opened meanwhile was not asked.
            if !has_new && may_be_found {
                let _ = tokio::time::timeout(WAIT_FOR_FOUND, found).await;
            }
            if has_new || may_be_found { Err(Outcome::RetryLater(Duration::ZERO)) } else { result }
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.start(context);
        let lone = self.shared.lone(&wants, context, &sink);
        Box::pin(async move {
            let ended: BoxFuture<'_, ()> = if let Some(lone) = lone {
                Box::pin(lone.get(wants))
            } else {
                let call = lock(&self.shared.table).want(self.shared.now(), &context.root, wants, sink);
                let call = GivesUp { shared: Arc::clone(&self.shared), call };
                self.shared.perform(context);
                Box::pin(async move { call.call.ended().await })
            };
            tokio::select! {
                () = ended => {}
                () = self.keep_time(context) => {}
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        if tags.is_empty() {
            return;
        }
        self.shared.lone.forget(tags);
        let mut table = lock(&self.shared.table);
        let cancelled = table.cancel(self.shared.now(), tags);
        let (owed, sources) = (table.take_cancellations(), table.open.all());
        drop(table);
        owed.into_iter().for_each(|(source, tags)| source.cancel(&tags));
        let dealt: HashSet<Tag> = cancelled.iter().map(|(_, tag)| *tag).collect();
        cancelled.into_iter().for_each(|(awaited, tag)| awaited.end(tag, Outcome::Cancelled));
        // Others may have been asked for while there was only one source.
        let undealt: Vec<Tag> = tags.iter().copied().filter(|tag| !dealt.contains(tag)).collect();
        if !undealt.is_empty() {
            sources.iter().for_each(|source| source.cancel(&undealt));
        }
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let sources = self.shared.sources();
            having::have(&sources, oid, context, ranges).await;
        })
    }
}

/// A call that is dropped before its end gives its wants up.
struct GivesUp {
    shared: Arc<SourceCalls>,
    call: Arc<DealtCall>,
}

impl Drop for GivesUp {
    fn drop(&mut self) {
        let mut table = lock(&self.shared.table);
        table.give_up(self.shared.now(), &self.call);
        let cancelled = table.take_cancellations();
        drop(table);
        cancelled.into_iter().for_each(|(source, tags)| source.cancel(&tags));
    }
}

/// The state of several sources: the nearest round trip, the sums of what came and waits, and trouble only if all are in it.
pub(crate) fn joined(all: SourceState, other: SourceState) -> SourceState {
    SourceState {
        window: all.window + other.window,
        beside: all.beside + other.beside,
        path: PathState {
            round_trip: nearest(all.path.round_trip, other.path.round_trip),
            shortest: nearest(all.path.shortest, other.path.shortest),
            receive_queue: all.path.receive_queue + other.path.receive_queue,
            arrived: all.path.arrived + other.path.arrived,
            is_due: all.path.is_due || other.path.is_due,
        },
        trouble: all.trouble.filter(|_| other.trouble.is_some()),
        is_encrypted: all.is_encrypted && other.is_encrypted,
        proves: all.proves && other.proves,
        makes_deltas: all.makes_deltas && other.makes_deltas,
        price: all.price.max(other.price),
        sources: all.sources + other.sources,
    }
}

/// The shorter one of two times, of which zero is unknown.
fn nearest(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { one.max(other) } else { one.min(other) }
}

/// A number for the order among equals; nothing secret depends on it.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, watch};
    use towpath_content::Hint;
    use towpath_store::About;
    use towpath_transfer::source::UNREACHED_PRICE;
    use towpath_transfer::{Metadata, SessionConfig};

    use super::*;
    use crate::{Cascade, HintedNodes};

    /// One that answers when it is let, with or without the object. Until then it is not reached.
    struct Answering {
        /// Its answer if it has not.
        lacks: Option<Outcome>,
        answers: Semaphore,
    }

    impl Source for Answering {
        fn name(&self) -> &str {
            "answering"
        }

        fn state(&self) -> SourceState {
            let bare = SourceState::of_window(1 << 20);
            match self.answers.available_permits() {
                0 => SourceState { price: UNREACHED_PRICE, ..bare },
                _ => bare,
            }
        }

        fn describe<'a>(
            &'a self,
            _query: Query,
            _context: &'a Context,
            answers: mpsc::Sender<Description>,
        ) -> BoxFuture<'a, Result<(), Outcome>> {
            Box::pin(async move {
                drop(self.answers.acquire().await);
                if let Some(outcome) = &self.lacks {
                    return Err(outcome.clone());
                }
                let (about, metadata) = (About::default(), Metadata::default());
                let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
                Ok(())
            })
        }

        fn get<'a>(&'a self, _: Vec<Want>, _: &'a Context, _: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }
    }

    /// Of 200 MB by 300 and 100 Mbit/s some 25 MB came twice: all through the transfer the faster line had nothing new to ask for.
    #[test]
    fn something_waits_here_as_long_as_there_is_more() {
        for window in [64 << 10, 1 << 20, 4 << 20, 16 << 20, 200 << 20] {
            let all = with_spare(window);
            // So much room is left to grow before further wants come.
            let room = SessionConfig::default().batch_bytes.min(all / 4);
            assert!(all - room > window, "{window}");
        }
    }

    #[tokio::test]
    async fn what_a_source_lacks_is_asked_of_one_that_was_opened_meanwhile() {
        let lacks = Arc::new(Answering { lacks: Some(Outcome::NotHere), answers: Semaphore::new(0) });
        let found = |_, _| -> Vec<Arc<dyn Source>> {
            vec![Arc::new(Answering { lacks: None, answers: Semaphore::new(9) })]
        };
        let many = Many::new(
            vec![Arc::clone(&lacks) as Arc<dyn Source>],
            vec![HintedNodes::new(Box::new(found), None)],
        );
        let hint =
            Hint::new(format!("tow://{}@192.0.2.1:7", towpath_content::NodeId([7; 32])), 0, 1).unwrap();
        let (_keep, hints) = watch::channel(vec![hint]);
        let context = Context { root: Oid::of(b""), node: None, secret: None, hints };
        let (answers, _inbox) = mpsc::channel(1);
        let opening = async {
            while lock(&many.shared.table).open.len() < 2 {
                tokio::task::yield_now().await;
            }
            lacks.answers.add_permits(9);
        };
        let (result, ()) =
            tokio::join!(many.describe(Query::about(context.root), &context, answers), opening);
        assert_eq!(result, Ok(()));
    }

    #[tokio::test]
    async fn who_is_opened_while_the_others_say_later_is_asked_at_once() {
        let hour = Duration::from_secs(3600);
        let later =
            Arc::new(Answering { lacks: Some(Outcome::RetryLater(hour)), answers: Semaphore::new(9) });
        let found = |_, _| -> Vec<Arc<dyn Source>> {
            vec![Arc::new(Answering { lacks: None, answers: Semaphore::new(9) })]
        };
        let many = Many::new(vec![later as Arc<dyn Source>], vec![HintedNodes::new(Box::new(found), None)]);
        let hint =
            Hint::new(format!("tow://{}@192.0.2.1:7", towpath_content::NodeId([7; 32])), 0, 1).unwrap();
        let (hinting, hints) = watch::channel(Vec::new());
        let context = Context { root: Oid::of(b""), node: None, secret: None, hints };
        let (answers, _inbox) = mpsc::channel(1);
        let opening = async {
            tokio::task::yield_now().await;
            hinting.send_replace(vec![hint]);
        };
        let asking = many.describe(Query::about(context.root), &context, answers);
        let (result, ()) = tokio::join!(asking, opening);
        assert_eq!(result, Ok(()));
    }

    #[tokio::test]
    async fn who_is_not_reached_is_asked_after_those_who_are() {
        let there = |permits| -> Arc<dyn Source> {
            Arc::new(Answering { lacks: None, answers: Semaphore::new(permits) })
        };
        let many = Many::new(vec![there(0), there(9)], Vec::new());
        let (asked, _) = many.shared.asked_and_open();
        let are_reached: Vec<bool> =
            asked.iter().map(|source| source.state().price != UNREACHED_PRICE).collect();
        assert_eq!(are_reached, [true, false]);
    }

    #[tokio::test]
    async fn one_source_is_asked_as_it_is_where_no_hint_names_another() {
        let nothing = || -> Arc<dyn Source> { Arc::new(Cascade::new(Vec::new())) };
        let finder = HintedNodes::new(Box::new(move |_, _| vec![nothing()]), None);
        let many = Many::new(vec![nothing()], vec![finder]);
        let hints = watch::channel(Vec::new()).1;
        many.start(&Context { root: Oid::of(b""), node: None, secret: None, hints });
        assert!(lock(&many.shared.table).only().is_some(), "nothing is dealt, and nobody dropped");
    }
}
