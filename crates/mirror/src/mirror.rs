//! A file on a web server as a source: few ranges, each as long as it can be, from as few connections as keep it busy.
//!
//! A call puts its wants into a queue. Whoever has a connection takes the oldest with all that lie around it, and asks for them by
//! one range. A server that answers with all of the file instead is read from its front to its end: what is wanted is
//! picked out as it passes. Nothing here checks bytes: that is the session's business, which blames this source.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::Layout;
use towpath_store::{About, ObjectKind};
use towpath_transfer::source::{NETWORK_PRICE, PathState, Query, Sink, SourceState};
use towpath_transfer::want::Payload;
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Metadata, Outcome, Source, SourceId, Tag, Want, WantId,
};

use crate::answer::WebError;
use crate::pace::{QUESTIONS, WebPace};
use crate::place::MirrorPlace;
use crate::queue::{RangeQueue, WaitingRange};
use crate::web::{NamedBy, Web, WebBytes, WebRules};
use crate::web_url::WebUrl;

/// Kind of source.
pub const MIRROR: &str = "mirror";
/// Files whose facts are kept: those that are asked for at a time are far fewer.
const MAX_FILES: usize = 1024;
/// A server that reads all of a file out waits so long for what is wanted next.
const LINGER: Duration = Duration::from_secs(5);
/// After an answer that was cut short, but brought something, the rest is asked for at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// See the head of this module.
pub struct Mirror {
    shared: Arc<MirrorCalls>,
    _end: DropGuard,
}

/// State of the source and of the questions under way.
struct MirrorCalls {
    place: MirrorPlace,
    source: SourceId,
    web: Web,
    since: Instant,
    state: Mutex<MirrorState>,
    /// Told when something more waits.
    more: Notify,
    token: CancellationToken,
}

#[derive(Default)]
struct MirrorState {
    queue: RangeQueue<WebWant>,
    files: HashMap<Oid, WebFacts>,
    /// Questions under way.
    asking: usize,
    /// The server knows no ranges.
    is_stream: bool,
    pace: WebPace,
    trouble: Option<String>,
    calls: HashMap<Tag, Arc<MirrorCall>>,
}

/// What is known of one file.
#[derive(Debug, Clone, Default)]
struct WebFacts {
    /// Its place after all redirects.
    url: Option<WebUrl>,
    tag: Option<String>,
    total: Option<u64>,
}

/// A want that waits, or is under way.
struct WebWant {
    tag: Tag,
    url: WebUrl,
    /// Bytes of the file, if the want tells.
    size: Option<u64>,
    asked: Instant,
    call: Arc<MirrorCall>,
}

/// A call of whoever wants something.
struct MirrorCall {
    sink: Arc<dyn Sink>,
    wants: Mutex<CallWants>,
    ended: Notify,
    given_up: CancellationToken,
}

/// The wants of a call.
struct CallWants {
    /// Those that nobody ends yet.
    owed: HashSet<Tag>,
    /// Number of those that have not ended.
    open: usize,
}

impl MirrorCall {
    fn new(wants: &[Want], sink: Arc<dyn Sink>) -> Arc<Self> {
        let owed: HashSet<Tag> = wants.iter().map(|want| want.tag).collect();
        let wants = Mutex::new(CallWants { open: owed.len(), owed });
        Arc::new(Self { sink, wants, ended: Notify::new(), given_up: CancellationToken::new() })
    }

    /// True for who is to end a want: it is said once.
    fn claim(&self, tag: Tag) -> bool {
        lock(&self.wants).owed.remove(&tag)
    }

    fn owes(&self, tag: Tag) -> bool {
        lock(&self.wants).owed.contains(&tag)
    }

    /// One that was claimed has ended.
    fn has_ended(&self) {
        let mut wants = lock(&self.wants);
        wants.open -= 1;
        if wants.open == 0 {
            self.ended.notify_one();
        }
    }

    fn end(&self, tag: Tag, outcome: Outcome) {
        if self.claim(tag) {
            self.sink.outcome(tag, outcome);
            self.has_ended();
        }
    }

    async fn deliver(&self, delivery: Delivery) {
        if self.claim(delivery.tag) {
            self.given_up.run_until_cancelled(self.sink.deliver(delivery)).await;
            self.has_ended();
        }
    }

    async fn ended(&self) {
        while lock(&self.wants).open > 0 {
            self.ended.notified().await;
        }
    }
}

impl Mirror {
    /// Objects at this place.
    pub fn new(place: MirrorPlace, named_by: NamedBy, rules: WebRules) -> Self {
        let web = Web::new(named_by, rules);
        let token = CancellationToken::new();
        let source = SourceId::other(MIRROR, Some(&place.name()));
        let shared = Arc::new(MirrorCalls {
            place,
            source,
            web,
            since: Instant::now(),
            state: Mutex::default(),
            more: Notify::new(),
            token: token.clone(),
        });
        Self { shared, _end: token.drop_guard() }
    }
}

impl Source for Mirror {
    fn name(&self) -> &str {
        MIRROR
    }

    fn state(&self) -> SourceState {
        let state = lock(&self.shared.state);
        let (round_trip, shortest) = (state.pace.nearest(), state.pace.nearest());
        let (arrived, is_due) = (state.pace.total(), state.asking > 0);
        let path = PathState { round_trip, shortest, receive_queue: 0, arrived, is_due };
        SourceState {
            window: state.pace.window(self.shared.since.elapsed()),
            beside: 0,
            path,
            trouble: state.trouble.clone(),
            is_encrypted: self.shared.place.is_encrypted(),
            proves: false,
            makes_deltas: false,
            price: NETWORK_PRICE,
            sources: 1,
        }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let metadata = Metadata::default();
            if matches!(self.shared.place, MirrorPlace::Folder(_)) && query.oid == context.root {
                // Which of the tree's files lie there shows when they are wanted.
                let about = About { kind: ObjectKind::Tree, ..About::default() };
                let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
                return Ok(());
            }
            let url = self.shared.place.url_of(&query.oid, &context.root, b"").ok_or(Outcome::NotHere)?;
            let total = self.shared.look(&query.oid, &url).await.map_err(|error| error.outcome())?;
            let layout = total.filter(|_| !query.oid.is_live()).and_then(|total| Layout::of(total).ok());
            let about = About::default();
            // Nobody need listen.
            let _ = answers.send(Description::Object { about, layout, metadata }).await;
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let call = MirrorCall::new(&wants, sink);
            let _guard = GivenUpCall { shared: &self.shared, call: &call };
            let mut empty = Vec::new();
            {
                let mut state = lock(&self.shared.state);
                for want in wants {
                    match self.shared.wanted(&want, context, &call) {
                        Some((_, range, waiting)) if range.is_empty() => empty.push(waiting),
                        Some((oid, range, waiting)) => {
                            state.calls.insert(want.tag, Arc::clone(&call));
                            state.queue.push(oid, range, waiting);
                        }
                        None => call.end(want.tag, Outcome::NotHere),
                    }
                }
            }
            for want in empty {
                self.shared.deliver(&want, Bytes::new()).await;
            }
            self.shared.start();
            call.ended().await;
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        let mut state = lock(&self.shared.state);
        let calls: Vec<_> = tags.iter().filter_map(|tag| Some((*tag, state.calls.remove(tag)?))).collect();
        state.queue.retain(|want| !tags.contains(&want.tag));
        drop(state);
        calls.iter().for_each(|(tag, call)| call.end(*tag, Outcome::Cancelled));
    }
}

/// A call that is dropped before its end gives its wants up.
struct GivenUpCall<'a> {
    shared: &'a MirrorCalls,
    call: &'a Arc<MirrorCall>,
}

impl Drop for GivenUpCall<'_> {
    fn drop(&mut self) {
        lock(&self.call.wants).owed.clear();
        self.call.given_up.cancel();
        let mut state = lock(&self.shared.state);
        state.queue.retain(|want| !Arc::ptr_eq(&want.call, self.call));
        state.calls.retain(|_, call| !Arc::ptr_eq(call, self.call));
    }
}

impl MirrorCalls {
    /// Where the bytes of a want lie, if they do here.
    fn wanted(
        &self,
        want: &Want,
        context: &Context,
        call: &Arc<MirrorCall>,
    ) -> Option<(Oid, Range<u64>, WebWant)> {
        let (oid, range, size) = match want.id {
            WantId::Piece { oid, layout, index } if index < layout.count() => {
                let piece = layout.range(index);
                let part = want.part.as_ref().map_or(piece.clone(), |part| {
                    piece.start + part.start..(piece.start + part.end).min(piece.end)
                });
                // How long it gets is not known while it is live.
                (oid, part, (!oid.is_live()).then_some(layout.size()))
            }
            WantId::Chunk { len, .. } => {
                let origin = want.origin?;
                (origin.oid, origin.offset..origin.offset.checked_add(len.into())?, None)
            }
            _ => return None,
        };
        // Only a file of a tree has its right from there. What is alone may have a path, too, on this machine.
        let path = want.group.coverage.map_or(&b""[..], |_| &want.group.path);
        let url = self.place.url_of(&oid, &context.root, path)?;
        let (tag, call) = (want.tag, Arc::clone(call));
        Some((oid, range, WebWant { tag, url, size, asked: Instant::now(), call }))
    }

    /// Begins to ask, on as many connections as there is something for.
    fn start(self: &Arc<Self>) {
        self.more.notify_waiters();
        let mut state = lock(&self.state);
        // Before the first answer nothing is known: one question is enough.
        let most = if state.pace.total() == 0 || state.is_stream { 1 } else { QUESTIONS };
        if state.asking >= most || state.queue.is_empty() {
            return;
        }
        state.asking += 1;
        drop(state);
        let (shared, token) = (Arc::clone(self), self.token.clone());
        tokio::spawn(async move {
            let _ = token.run_until_cancelled(shared.ask_on()).await;
        });
    }

    /// Asks for one run after another while anything waits.
    async fn ask_on(self: &Arc<Self>) {
        loop {
            let (oid, run) = {
                let mut state = lock(&self.state);
                let now = self.since.elapsed();
                let limit = state.pace.run(now, state.queue.bytes());
                let Some(run) = state.queue.take(limit) else {
                    state.asking -= 1;
                    let is_idle = state.asking == 0;
                    state.pace.arrived(now, 0, is_idle);
                    return;
                };
                state.pace.asked(now);
                run
            };
            let is_owed = |waiting: &WaitingRange<WebWant>| waiting.of.call.owes(waiting.of.tag);
            let mut run: Vec<_> = run.into_iter().filter(is_owed).collect();
            let asked: usize = run.len();
            if let Err(error) = self.ask(&oid, &mut run).await {
                self.failed(&error, &run, run.len() < asked);
            }
            // What comes may have made room for more than one.
            self.start();
        }
    }

    /// Asks for the ranges of a run and hands them over as they come; those that are left in it have not come.
    async fn ask(self: &Arc<Self>, oid: &Oid, run: &mut Vec<WaitingRange<WebWant>>) -> Result<(), WebError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        let (range, url, size) = (first.range.start..last.range.end, first.of.url.clone(), first.of.size);
        let answer = self.open(oid, &url, &range, size).await?;
        let is_whole = answer.range.is_whole;
        let mut reader = RangeReader { at: answer.range.start, answer, left: Bytes::new() };
        run.reverse();
        let read = self.read(&mut reader, run).await;
        run.reverse();
        read?;
        match is_whole {
            true => self.read_on(oid, &mut reader, run).await?,
            false => reader.answer.done(&self.web),
        }
        Ok(())
    }

    /// Asks for a range, where it was found last, and checks that it is of the file that is wanted.
    async fn open(
        &self,
        oid: &Oid,
        url: &WebUrl,
        range: &Range<u64>,
        size: Option<u64>,
    ) -> Result<WebBytes, WebError> {
        let known = lock(&self.state).files.get(oid).cloned().unwrap_or_default();
        let at = known.url.as_ref().unwrap_or(url);
        let answer = match self.web.open(at, range, known.tag.as_deref()).await {
            // What it was redirected to holds for a while only.
            Err(WebError::Status(..)) if at != url => self.web.open(url, range, known.tag.as_deref()).await,
            answer => answer,
        }?;
        let found = answer.range.total;
        if let Some((found, expected)) = found.zip(size.or(known.total)).filter(|(one, other)| one != other) {
            return Err(WebError::OtherSize { found, expected });
        }
        let mut state = lock(&self.state);
        state.pace.answered(answer.waited);
        state.trouble = None;
        if state.files.len() >= MAX_FILES {
            state.files.clear();
        }
        let facts = state.files.entry(*oid).or_default();
        facts.url = Some(answer.url.clone());
        facts.tag.clone_from(&answer.range.tag);
        facts.total = found.or(facts.total);
        state.is_stream = answer.range.is_whole;
        drop(state);
        Ok(answer)
    }

    /// Looks whether a file is there; its bytes, if the server tells.
    async fn look(&self, oid: &Oid, url: &WebUrl) -> Result<Option<u64>, WebError> {
        match self.open(oid, url, &(0..1), None).await {
            Ok(mut answer) => {
                if !answer.range.is_whole {
                    while answer.next().await?.is_some() {}
                    answer.done(&self.web);
                }
                Ok(answer.range.total)
            }
            // Of an empty file there is no first byte.
            Err(WebError::OtherSize { found: 0, .. }) => Ok(Some(0)),
            Err(error) => {
                self.trouble(&error);
                Err(error)
            }
        }
    }

    /// Reads and delivers what is wanted, last of `run` first: those that are left in it have not come.
    async fn read(
        &self,
        reader: &mut RangeReader,
        run: &mut Vec<WaitingRange<WebWant>>,
    ) -> Result<(), WebError> {
        while let Some(next) = run.last() {
            let is_wanted = run.iter().any(|waiting| waiting.of.call.owes(waiting.of.tag));
            if !is_wanted {
                run.clear();
                return Err(WebError::CutShort);
            }
            let bytes = reader.read(&next.range, |came| self.came(came)).await?;
            if let Some(came) = run.pop() {
                self.deliver(&came.of, bytes).await;
            }
        }
        Ok(())
    }

    /// Reads a file to its end that comes whole, and delivers of it what is wanted meanwhile.
    async fn read_on(
        &self,
        oid: &Oid,
        reader: &mut RangeReader,
        run: &mut Vec<WaitingRange<WebWant>>,
    ) -> Result<(), WebError> {
        loop {
            let more = self.more.notified();
            let (next, is_idle) = {
                let queue = &mut lock(&self.state).queue;
                (queue.take_from(oid, reader.at), queue.is_empty())
            };
            match next {
                Some(next) => {
                    run.push(next);
                    self.read(reader, run).await?;
                }
                // What lies in front of here needs the file from its beginning, and another file needs the turn.
                None if reader.is_over() || !is_idle => return Ok(()),
                None if tokio::time::timeout(LINGER, more).await.is_err() => return Ok(()),
                None => {}
            }
        }
    }

    fn came(&self, bytes: u64) {
        lock(&self.state).pace.arrived(self.since.elapsed(), bytes, false);
    }

    async fn deliver(&self, want: &WebWant, bytes: Bytes) {
        let (tag, source) = (want.tag, self.source.clone());
        let (payload, timing) = (Payload::Bytes(bytes), (want.asked, Instant::now()));
        lock(&self.state).calls.remove(&tag);
        want.call.deliver(Delivery { tag, payload, proof: None, source, timing, saved: 0 }).await;
    }

    /// What did not come of a run ends; `has_some` if a part of it came.
    fn failed(&self, error: &WebError, run: &[WaitingRange<WebWant>], has_some: bool) {
        if run.is_empty() {
            return;
        }
        self.trouble(error);
        let outcome = match error {
            WebError::CutShort if has_some => Outcome::RetryLater(AT_ONCE),
            error => error.outcome(),
        };
        for waiting in run {
            lock(&self.state).calls.remove(&waiting.of.tag);
            waiting.of.call.end(waiting.of.tag, outcome.clone());
        }
    }

    fn trouble(&self, error: &WebError) {
        tracing::debug!(mirror = %self.source, %error, "a mirror failed");
        let trouble = format!("{} {error}", self.source);
        self.web.note(&trouble);
        lock(&self.state).trouble = Some(trouble);
    }
}

/// Reads ranges out of an answer, in order.
struct RangeReader {
    answer: WebBytes,
    at: u64,
    left: Bytes,
}

impl RangeReader {
    /// The bytes of a range that begins no earlier than the last one ended. `came` is told what comes.
    async fn read(&mut self, range: &Range<u64>, came: impl Fn(u64)) -> Result<Bytes, WebError> {
        while self.at < range.start {
            let skipped = (range.start - self.at).min(self.fill(&came).await?);
            drop(self.take(skipped));
        }
        let len = range.end - range.start;
        if self.fill(&came).await? >= len {
            return Ok(self.take(len));
        }
        let mut bytes = BytesMut::with_capacity(len as usize);
        while (bytes.len() as u64) < len {
            let more = (len - bytes.len() as u64).min(self.fill(&came).await?);
            bytes.extend_from_slice(&self.take(more));
        }
        Ok(bytes.freeze())
    }

    /// Bytes that are here, one at least.
    async fn fill(&mut self, came: impl Fn(u64)) -> Result<u64, WebError> {
        while self.left.is_empty() {
            self.left = self.answer.next().await?.ok_or(WebError::CutShort)?;
            came(self.left.len() as u64);
        }
        Ok(self.left.len() as u64)
    }

    fn take(&mut self, bytes: u64) -> Bytes {
        self.at += bytes;
        self.left.split_to(bytes as usize)
    }

    fn is_over(&self) -> bool {
        self.answer.range.end.is_some_and(|end| self.at >= end)
    }
}
