//! Files, trees and streams into the store, and the tickets for them.
//!
//! Sources that are quick to read are read first, and the ticket names the content. For those that take long (a
//! large file that the index does not know, any tree, any stream) the ticket names a live object
//! and comes at once: a receiver follows while the rest is still being read.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towpath_store::Leases;

use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use towpath_api::{ApiError, ErrorKind, Event, Input, OpenPutRequest, Progress, PutReply, Summary};
use towpath_content::Oid;
use towpath_content::ticket::{BoundSecret, Secret, Terms};
use towpath_store::{About, Holder, Lease, ObjectKind, Stamp, State, Store, wait_change};

use crate::admission::Admitted;
use crate::boundaries::Boundaries;
use crate::metrics::Direction;
use crate::parts::{self, GiveUpOnDrop, Part};
use crate::put_source::PutSource;
use crate::put_tree::{self, PutReport, TreeTotals};
use crate::state::Service;
use crate::transfers::{PROGRESS_EVERY, Transfer};
use towpath_config::shares::Share;
use towpath_peer_server::fetch_limit::FetchLimit;
use towpath_peer_server::fresh::{now, random};
use towpath_words as words;

/// A file up to this size is hashed before its ticket is made.
const HASH_FIRST: u64 = 64 << 20;
/// Longest time for opening a file before its ticket is given out in any case.
const LONGEST_START: Duration = Duration::from_secs(5);
/// Paths left out that wait to be told: whoever reads a tree waits for whoever put it.
const WAITING: usize = 512;
/// Paths left out of a tree that are named though it has no ticket yet; the others are counted.
const MOST_NAMED: usize = 16 << 10;
/// Interval at which it is checked whether what is not shown yet ever will be.
const SHOW_TICK: Duration = Duration::from_millis(20);

/// Something that is served until the service ends.
pub struct SharedPut {
    /// Its ticket.
    pub reply: PutReply,
    /// Completes when all of it has been read.
    pub reading: JoinHandle<Result<PutReply, ApiError>>,
    /// Problems with single files, as they are found.
    pub failures: mpsc::Receiver<(String, String)>,
    /// Number of those that are not named.
    unnamed: u64,
    /// Bytes of a tree's files that were read so far.
    read: Arc<AtomicU64>,
}

/// What a put says of its ticket.
struct TicketWish {
    /// What was put before, under the same terms: its ticket is given again if the content is the same.
    known: Option<Share>,
    /// Terms of the ticket.
    terms: Terms,
}

impl TicketWish {
    /// With other terms there is another secret: whoever has the old ticket has no right by the new one.
    fn new(known: impl IntoIterator<Item = Share>, terms: Terms) -> Self {
        Self { known: known.into_iter().find(|known| known.secret.terms == terms), terms }
    }
}

/// A secret that nobody can guess, for a ticket with these terms.
fn fresh_secret(terms: Terms) -> Result<BoundSecret, ApiError> {
    Ok(BoundSecret { secret: Secret(random()?), terms })
}

/// Plan for putting a path.
struct PutPlan {
    source: PutSource,
    about: About,
    size: u64,
    share: Share,
    /// True if the content was known before; then `share` names it already.
    is_read: bool,
    /// Chunk boundaries given by the application.
    boundaries: Boundaries,
    /// Entries of a tree that were left out, if it is read already.
    left_out: UntoldEntries,
}

/// Entries that were left out of a tree before anybody could be told.
#[derive(Default)]
struct UntoldEntries {
    /// Paths, each with the reason.
    named: Vec<(String, String)>,
    /// Number of further ones.
    unnamed: u64,
}

impl UntoldEntries {
    fn push(&mut self, path: String, why: String) {
        match self.named.len() < MOST_NAMED {
            true => self.named.push((path, why)),
            false => self.unnamed += 1,
        }
    }
}

/// Serves paths from now on.
pub async fn share(service: &Arc<Service>, source: PutSource, terms: Terms) -> Result<SharedPut, ApiError> {
    share_with(service, source, terms, None).await.map(|(shared, _)| shared)
}

/// The same for the first `most` nodes alone, and what limits it to them.
pub(crate) async fn share_with(
    service: &Arc<Service>,
    source: PutSource,
    terms: Terms,
    most: Option<NonZeroU32>,
) -> Result<(SharedPut, Option<Arc<FetchLimit>>), ApiError> {
    let (shares, key) = (&service.shares, source.key());
    // A ticket that was taken back is not given again, nor one that went to others with a limit, or without.
    let known = shares.find(&key).filter(|share| {
        !service.withdrawals.is_withdrawn(&share.oid, &share.secret)
            && FetchLimit::is_recorded(shares, &key, share) == most.is_some()
    });
    let wish = TicketWish::new(known, terms);
    let plan = plan(service, source, wish, Boundaries::default()).await?;
    let limit =
        most.map(|most| FetchLimit::open((shares, service.node_id()), key.clone(), plan.share.clone(), most));
    if let Some(limit) = &limit {
        service.door.fetches.count(limit);
        service.grants.limit(Arc::clone(limit));
    }
    service.grants.share(plan.share.oid, plan.share.secret);
    service.door.fetches.name(plan.share.oid, &plan.about.name);
    if let Err(error) = shares.keep(&key, &plan.share) {
        tracing::warn!(%error, "the ticket can't be kept for next time");
    }
    Ok((start_and_show(service, plan).await?, limit))
}

/// Puts paths, to be held by `holder`, with chunks as the application wants them. Returns when the ticket is known; what is
/// still to be read goes on in the background.
async fn put_cut(
    service: &Arc<Service>,
    source: PutSource,
    holder: Holder,
    (terms, boundaries): (Terms, Boundaries),
) -> Result<SharedPut, ApiError> {
    let leases = service.store.leases().map_err(|error| words::store(&error))?;
    let (own, others): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| {
        lease.holder == holder
            && lease.secret.terms == terms
            && source.plain().is_some_and(|path| lease.path.as_deref() == Some(path))
    });
    let known = own.first().map(|lease| Share { oid: lease.oid, secret: lease.secret });
    let mut plan = plan(service, source, TicketWish::new(known, terms), boundaries).await?;
    if others.iter().any(|lease| lease.oid == plan.share.oid) {
        // Someone else holds this very name, or it names another file with the same content: with
        // one of its own neither takes away the other's.
        plan.share = Share { oid: Oid::Live(random()?), secret: fresh_secret(terms)? };
        plan.is_read = false;
        plan.left_out = UntoldEntries::default();
    }
    let lease = Lease {
        oid: plan.share.oid,
        content: plan.is_read.then_some(plan.share.oid).filter(|oid| !oid.is_live()),
        size: (plan.is_read || plan.about.kind == ObjectKind::Blob).then_some(plan.size),
        secret: plan.share.secret,
        // A source read by more than a path can't be read again by one.
        path: plan.source.plain().map(Path::to_path_buf),
        about: plan.about.clone(),
        created: now(),
        holder,
    };
    service.lease(&lease)?;
    if !plan.is_read && !plan.boundaries.ends().is_empty() {
        let noted = service.store.lease_table().note_boundaries(&lease.oid, plan.boundaries.ends());
        noted.map_err(|error| words::store(&error))?;
    }
    start_and_show(service, plan).await
}

/// Goes on with a put that this service acknowledged and did not finish when it ended: reads what was
/// not read, and cuts it as the application wanted.
pub(crate) async fn resume(service: &Arc<Service>, lease: Lease) -> Result<(), ApiError> {
    let ends =
        service.store.lease_table().noted_boundaries(&lease.oid).map_err(|error| words::store(&error))?;
    match (lease.content, lease.path) {
        (Some(_), _) if ends.is_empty() => Ok(()),
        (Some(content), _) => {
            let service = Arc::clone(service);
            let cutting = tokio::task::spawn_blocking(move || {
                let boundaries = Boundaries::new(&ends)?;
                cut_noted(&service, &lease.oid, &content, &boundaries);
                Ok(())
            });
            cutting.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
        }
        (None, Some(path)) => {
            // If the file has shrunk since, nothing says where its chunks end now.
            let fits = |size| Boundaries::new(&ends).ok().filter(|it| it.check_size(size).is_ok());
            let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            // Nobody is told what is left out.
            let cut = (lease.secret.terms, fits(size).unwrap_or_default());
            let SharedPut { reading, .. } =
                put_cut(service, PutSource::of(&path)?, lease.holder, cut).await?;
            let read = reading.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
            read.map(drop)
        }
        (None, None) => Ok(()),
    }
}

/// The same for an application: it counts as a transfer until all is read, and everybody who
/// listens gets its progress.
pub async fn put_named(
    service: &Arc<Service>,
    source: PutSource,
    holder: Holder,
    how: (Terms, Boundaries),
) -> Result<PutReply, ApiError> {
    let admitted = service.admission.begin_anywhere(Direction::Put)?;
    let shared = put_cut(service, source, holder, how).await?;
    let reply = shared.reply.clone();
    tokio::spawn(attend(Arc::clone(service), shared, admitted, None));
    Ok(reply)
}

/// The same for an application that wants to know what becomes of it: `events` has the ticket at once,
/// then what is left out. It goes on if the application does not wait for its end.
pub(crate) async fn put_to_end(
    service: &Arc<Service>,
    source: PutSource,
    holder: Holder,
    how: (Terms, Boundaries),
    events: mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    let admitted = service.admission.begin_anywhere(Direction::Put)?;
    let shared = put_cut(service, source, holder, how).await?;
    let _ = events.send(Event::Ticket(shared.reply.clone())).await;
    let attending = tokio::spawn(attend(Arc::clone(service), shared, admitted, Some(events)));
    attending.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// Tells of a put until all of it has been read.
async fn attend(
    service: Arc<Service>,
    mut shared: SharedPut,
    admitted: Admitted,
    events: Option<mpsc::Sender<Event>>,
) -> Result<Summary, ApiError> {
    let transfer = service.transfers.begin_put(shared.reply.oid.clone());
    let mut progress = PutProgress { transfer, events, failed: shared.unnamed };
    let mut tick = tokio::time::interval(PROGRESS_EVERY);
    let ended = loop {
        tokio::select! {
            biased;
            Some(failure) = shared.failures.recv() => progress.failure(failure).await,
            ended = &mut shared.reading => break ended,
            _ = tick.tick() => {
                let done = shared.read_so_far(&service);
                let expected = shared.reply.size.unwrap_or(done);
                progress.report(Event::Transfer(Progress { done, expected, ..Progress::default() })).await;
            }
        }
    };
    while let Ok(failure) = shared.failures.try_recv() {
        progress.failure(failure).await;
    }
    let ended = ended.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string())).flatten();
    let ended = ended.map(|PutReply { oid, size, .. }| {
        admitted.done();
        Summary { oid, bytes: size.unwrap_or(0), failed: progress.failed, ..Summary::here() }
    });
    progress.transfer.report(&match &ended {
        Ok(summary) => Event::Summary(summary.clone()),
        Err(error) => Event::Failed(error.clone()),
    });
    ended
}

/// Listeners to the progress of a put.
struct PutProgress {
    transfer: Transfer,
    /// To whoever put it, until it goes away.
    events: Option<mpsc::Sender<Event>>,
    failed: u64,
}

impl PutProgress {
    async fn failure(&mut self, (path, error): (String, String)) {
        self.failed += 1;
        self.report(Event::FileFailed { path, error }).await;
    }

    async fn report(&mut self, event: Event) {
        self.transfer.report(&event);
        if let Some(events) = &self.events
            && events.send(event).await.is_err()
        {
            self.events = None;
        }
    }
}

impl SharedPut {
    fn read_so_far(&self, service: &Service) -> u64 {
        let name = self.reply.oid.parse::<Oid>().ok().filter(|_| self.reply.size.is_some());
        match name.and_then(|oid| service.store.have(&oid).ok()) {
            Some(file) => file.layout.size(),
            None => self.read.load(Ordering::Relaxed),
        }
    }
}

/// Starts to read, and returns when a receiver that comes at once finds the object.
async fn start_and_show(service: &Arc<Service>, plan: PutPlan) -> Result<SharedPut, ApiError> {
    let oid = plan.share.oid;
    let shared = start(service, plan)?;
    let (service, reading) = (Arc::clone(service), shared.reading.abort_handle());
    let showing = tokio::task::spawn_blocking(move || until_shown(&service, &oid, &reading));
    showing.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    Ok(shared)
}

/// Blocks until the object can be found, or `reading` ended without it.
fn until_shown(service: &Service, oid: &Oid, reading: &AbortHandle) {
    let begun = Instant::now();
    loop {
        let seen = service.store.version(oid);
        if service.store.have(oid).is_ok() || reading.is_finished() || begun.elapsed() >= LONGEST_START {
            return;
        }
        wait_change(&*service.store, oid, seen, SHOW_TICK);
    }
}

fn start(service: &Arc<Service>, mut plan: PutPlan) -> Result<SharedPut, ApiError> {
    let reply = PutReply {
        ticket: service.ticket(plan.share.oid, plan.share.secret),
        oid: plan.share.oid.to_string(),
        size: (plan.about.kind == ObjectKind::Blob).then_some(plan.size),
    };
    let (tell, failures) = mpsc::channel(WAITING);
    let UntoldEntries { named, unnamed } = std::mem::take(&mut plan.left_out);
    let read_so_far = Arc::<AtomicU64>::default();
    let (service, mut end, counted) = (Arc::clone(service), reply.clone(), Arc::clone(&read_so_far));
    let reading = tokio::task::spawn_blocking(move || {
        // The one that put it may not want to know.
        let left_out = |path, why| drop(tell.blocking_send((path, why)));
        named.into_iter().for_each(|(path, why)| left_out(path, why));
        if !plan.is_read {
            let report = PutReport { left_out: &left_out, read: &counted };
            let (content, size) = read(&service, &plan, &report)?;
            (end.oid, end.size) = (content.to_string(), Some(size));
        }
        Ok(end)
    });
    Ok(SharedPut { reply, reading, failures, unnamed, read: read_so_far })
}

/// Reads what a plan puts, under its live name.
fn read(service: &Service, plan: &PutPlan, report: &PutReport<'_>) -> Result<(Oid, u64), ApiError> {
    let live = &plan.share.oid;
    match plan.about.kind {
        ObjectKind::Blob => {
            let put = service.store.put_file(plan.source.first(), Some(live), &plan.about);
            let (oid, size) = put.map_err(|error| words::store(&error))?;
            cut_noted(service, live, &oid, &plan.boundaries);
            Ok((oid, size))
        }
        ObjectKind::Tree => {
            let put =
                put_tree::put(&service.store, service.processors(), &plan.source, live, &plan.about, report);
            let TreeTotals { descriptor, bytes } = put?;
            if let Err(error) = service.store.lease_table().note_size(live, bytes) {
                tracing::warn!(%error, "the size of a tree was not noted");
            }
            Ok((descriptor, bytes))
        }
    }
}

/// Keeps where the application says that chunks end. That is advice: the put is not to fail for want
/// of it.
fn cut(service: &Service, oid: &Oid, boundaries: &Boundaries) {
    let given = boundaries.ends();
    if !given.is_empty()
        && let Err(error) = service.store.recipes().give_boundaries(oid, given)
    {
        tracing::warn!(%error, "boundaries of chunks were not kept");
    }
}

/// The same for what was read under `name`, with which the boundaries were noted.
fn cut_noted(service: &Service, name: &Oid, oid: &Oid, boundaries: &Boundaries) {
    cut(service, oid, boundaries);
    if !boundaries.ends().is_empty()
        && let Err(error) = service.store.lease_table().forget_boundaries(name)
    {
        tracing::warn!(%error, "boundaries of chunks are still noted");
    }
}

/// Decides under which name a path is put. The same ticket as before is given again if the content is the same, or was
/// never completely read.
async fn plan(
    service: &Arc<Service>,
    source: PutSource,
    wish: TicketWish,
    boundaries: Boundaries,
) -> Result<PutPlan, ApiError> {
    let service = Arc::clone(service);
    let planning = tokio::task::spawn_blocking(move || plan_blocking(&service, source, wish, boundaries));
    planning.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

fn plan_blocking(
    service: &Service,
    source: PutSource,
    TicketWish { known, terms }: TicketWish,
    boundaries: Boundaries,
) -> Result<PutPlan, ApiError> {
    let (about, size) = source.describe()?;
    let is_tree = about.kind == ObjectKind::Tree;
    let secret = match &known {
        Some(known) => known.secret,
        None => fresh_secret(terms)?,
    };
    match is_tree {
        true => boundaries.refuse()?,
        false => boundaries.check_size(size)?,
    }
    // A put interrupted before all was read goes on under its name.
    let bound = known.as_ref().map(|known| binding(service, &known.oid));
    if let (Some(share), Some(None)) = (&known, bound)
        && share.oid.is_live()
    {
        let (share, left_out) = (Share { oid: share.oid, secret: share.secret }, UntoldEntries::default());
        return Ok(PutPlan { source, about, size, share, is_read: false, boundaries, left_out });
    }
    let content = bound.flatten();
    if is_tree {
        return plan_tree(service, source, about, (known.zip(content), terms));
    }
    if size > HASH_FIRST && content.is_none() && !is_known(service, source.first()) {
        let (share, left_out) = (Share { oid: Oid::Live(random()?), secret }, UntoldEntries::default());
        return Ok(PutPlan { source, about, size, share, is_read: false, boundaries, left_out });
    }
    let (oid, size) =
        service.store.put_file(source.first(), None, &about).map_err(|error| words::store(&error))?;
    cut(service, &oid, &boundaries);
    let share = match (known, content) {
        (Some(share), Some(content)) if content == oid => share,
        _ => Share { oid, secret },
    };
    Ok(PutPlan { source, about, size, share, is_read: true, boundaries, left_out: UntoldEntries::default() })
}

/// A tree that was read before is read again (its unchanged files are not), to see whether it is
/// still the same.
fn plan_tree(
    service: &Service,
    source: PutSource,
    about: About,
    (known, terms): (Option<(Share, Oid)>, Terms),
) -> Result<PutPlan, ApiError> {
    let fresh = Oid::Live(random()?);
    let Some((known, content)) = known else {
        let share = Share { oid: fresh, secret: fresh_secret(terms)? };
        let (size, boundaries, left_out) = (0, Boundaries::default(), UntoldEntries::default());
        return Ok(PutPlan { source, about, size, share, is_read: false, boundaries, left_out });
    };
    let left_out = RefCell::<UntoldEntries>::default();
    let push = |path, why| left_out.borrow_mut().push(path, why);
    let report = PutReport { left_out: &push, read: &AtomicU64::default() };
    let totals = put_tree::put(&service.store, service.processors(), &source, &fresh, &about, &report)?;
    let left_out = left_out.into_inner();
    let oid = if totals.descriptor == content { known.oid } else { fresh };
    let (share, boundaries) = (Share { oid, secret: known.secret }, Boundaries::default());
    Ok(PutPlan { source, about, size: totals.bytes, share, is_read: true, boundaries, left_out })
}

/// True if the index knows the file as it is now, so that it need not be read.
fn is_known(service: &Service, path: &Path) -> bool {
    let (Some(dir), Some(name), Ok(stamp)) = (path.parent(), path.file_name(), Stamp::of_path(path)) else {
        return false;
    };
    service.store.known(dir, &[(name, stamp)]).is_ok_and(|known| known.iter().all(Option::is_some))
}

/// The content that `oid` names, if it is known here.
fn binding(service: &Service, oid: &Oid) -> Option<Oid> {
    match service.store.have(oid).ok()?.state {
        State::Bound(content) => Some(content),
        State::Complete => Some(*oid),
        _ => None,
    }
}

/// Puts bytes as they come; the ticket is sent first.
pub async fn put_stream(
    service: &Arc<Service>,
    request: &OpenPutRequest,
    input: Input<'_>,
    ticket: mpsc::Sender<PutReply>,
) -> Result<PutReply, ApiError> {
    let (put, reply) = OpenStream::begin(service, request)?;
    let _ = ticket.send(reply).await;
    put.fill(input, &Boundaries::default()).await
}

/// A put whose bytes come as one stream.
pub struct OpenStream {
    service: Arc<Service>,
    live: Oid,
    watch: GiveUpOnDrop,
}

impl OpenStream {
    /// Begins one; its ticket is honoured from now on.
    pub fn begin(service: &Arc<Service>, request: &OpenPutRequest) -> Result<(Self, PutReply), ApiError> {
        let (live, reply) = parts::open(service, request)?;
        // Only an end that was seen makes an object: a caller that goes away in the middle must not
        // bind a ticket to half of its bytes.
        let watch = GiveUpOnDrop::new(service, live);
        Ok((Self { service: Arc::clone(service), live, watch }, reply))
    }

    /// Takes all bytes of `input`; the object is whole afterwards. `boundaries` behind its end say
    /// nothing.
    pub async fn fill(self, mut input: Input<'_>, boundaries: &Boundaries) -> Result<PutReply, ApiError> {
        let mut offset = 0;
        for &end in boundaries.ends() {
            let (part, position) = ((&mut input).take(end - offset), Part { offset, boundary: true });
            offset = parts::append(&self.service, &self.live, position, Box::new(part)).await?.size;
            if offset < end {
                break;
            }
        }
        let position = Part { offset, boundary: false };
        parts::append(&self.service, &self.live, position, input).await?;
        let reply = parts::commit(&self.service, &self.live).await?;
        self.watch.release();
        Ok(reply)
    }
}
