//! The local API in process, and what a program that has the service does with it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyRequest, CopySummary};
use towpath_api::{
    Api, ApiError, BoxFuture, Content, ContentRequest, ErrorKind, Event, GcReply, GcRequest, GetRequest,
    Held, IndexRequest, Indexed, Input, ListRequest, Object, OpenPutRequest, PartReply, Parts, PutReply,
    PutRequest, PutsInParts, Session, ShareRequest, Status, StayRequest, Summary, TicketTerms, TransferEvent,
};
use towpath_content::{Oid, Ticket};
use towpath_files::display_name;
use towpath_store::{CachedObject, GcOptions, Holder, Lease, Leases, ObjectKind, Store};

use crate::boundaries::Boundaries;
use crate::bringing;
use crate::metrics::{Direction, Watch};
use crate::open_session::Open;
use crate::parts::{self, Part};
use crate::put_source::PutSource;
use crate::state::{Service, parse_name};
use crate::staying::DaemonPassing;
use crate::ticket_ends::{ALL_ASKED, terms, told_terms};
use crate::web_places::{mirror_hints, with_mirrors};
use crate::{content, copy, get, put, staying};
use towpath_indexing::{Cancel, IndexHost, Rhythm, index, keep_fresh};
use towpath_peer_server::ending::{self, Ending, UnderWay};
use towpath_peer_server::fetch_limit::FetchLimit;
use towpath_words as words;

impl Service {
    /// Lets nothing new begin, and waits for what is under way, but not for longer than the
    /// configured grace.
    pub async fn drain(&self) {
        self.admission.end();
        self.door.close();
        let grace = Duration::from_secs(self.config().general.grace.0);
        let under_way = || UnderWay {
            transfers: self.admission.transfers(),
            connections: self.door.limits.connections(),
            sent: self.metrics.served.sent(),
        };
        let mut ending = Ending::new(Instant::now(), grace, under_way().sent);
        while !ending.is_over(Instant::now(), under_way()) {
            tokio::time::sleep(ending::LOOK_EVERY).await;
        }
        if parts::end_all(self) {
            self.door.take_leave().await;
        }
    }

    /// Keeps the directories that are configured in the index. Never ends.
    pub async fn keep_indexed(self: Arc<Self>) {
        let reconfigured = Arc::clone(&self.reconfigured);
        keep_fresh(self.index_host(), self.config.clone(), reconfigured, Rhythm::default()).await;
    }

    fn index_host(&self) -> IndexHost {
        IndexHost { home: self.home.clone(), store: Arc::clone(&self.store) }
    }

    /// Goes on with what the last daemon passed on, and reads what was put and not completely read when it ended.
    pub fn resume(self: &Arc<Self>) {
        DaemonPassing::resume(self);
        bringing::resume(self);
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let leases = service.store.leases().unwrap_or_default();
            for lease in leases {
                let path = lease.path.clone().unwrap_or_default();
                if let Err(error) = put::resume(&service, lease).await {
                    tracing::warn!(path = %path.display(), %error, "could not go on with a put");
                }
            }
        });
    }
}

impl Service {
    fn collect(&self, request: GcRequest) -> Result<GcReply, ApiError> {
        let mut options = GcOptions { policy: self.config().cache_policy() };
        if request.all {
            options.policy.owned_bytes = 0;
        }
        let collected = self.store.gc(&options).map_err(|error| words::store(&error))?;
        let forgotten = self.shares.forget_sent(|oid| self.store.have(oid).is_ok());
        forgotten.map_err(|error| words::io("tidy up", &self.home.shares(), &error))?;
        Ok(GcReply {
            objects: collected.evicted.objects,
            bytes: collected.evicted.bytes + collected.bytes,
            entries: collected.files + collected.evicted.files + collected.values,
            leftovers: collected.objects + collected.chunks + collected.recipes + collected.temporaries,
            leases: collected.leases,
        })
    }

    /// The object held under a ticket or an OID: the put that gave this ticket, else what was put as
    /// this OID or became it. The ticket of a small object names its content, and several puts may
    /// have the same one; their secrets differ.
    fn leased(&self, name: &str) -> Result<Oid, ApiError> {
        let (oid, ticket) = (parse_name(name)?, name.trim().parse::<Ticket>().ok());
        let leases = self.store.leases().map_err(|error| words::store(&error))?;
        let is_of = |lease: &&Lease| lease.oid == oid || lease.content == Some(oid);
        let given =
            |lease: &&Lease| ticket.as_ref().is_some_and(|ticket| ticket.bound_secret() == lease.secret);
        let by_ticket = leases.iter().filter(is_of).find(given);
        let by_name = || leases.iter().find(|lease| lease.oid == oid);
        let found = by_ticket.or_else(by_name).or_else(|| leases.iter().find(is_of));
        Ok(found.map_or(oid, |lease| lease.oid))
    }

    /// Takes back the ticket of a lease that was given back, for all who hold it.
    fn withdraw(&self, lease: &Lease) {
        self.withdrawals.withdraw(lease.oid, lease.secret, &self.identity);
    }

    /// The ticket that `name` is, if it may be one of what this service shared: it has this node's id, is of no put and not taken
    /// back yet. Only the last ticket of each path is on record, so others are believed.
    fn shared_ticket(&self, name: &str) -> Result<Option<Ticket>, ApiError> {
        let own = name.trim().parse::<Ticket>().ok().filter(|ticket| ticket.node == self.node_id());
        let Some(ticket) = own else { return Ok(None) };
        let leases = self.store.leases().map_err(|error| words::store(&error))?;
        let is_put = leases.iter().any(|lease| lease.secret == ticket.bound_secret());
        let is_over = self.withdrawals.is_withdrawn(&ticket.oid, &ticket.bound_secret());
        Ok(Some(ticket).filter(|_| !is_put && !is_over))
    }

    /// Takes back a ticket of what is shared, or was.
    fn take_back(&self, ticket: &Ticket) -> Result<(), ApiError> {
        if ticket.enclosed.is_some() {
            return Err(words::ticket_holds_all());
        }
        self.withdrawals.withdraw(ticket.oid, ticket.bound_secret(), &self.identity);
        Ok(())
    }

    /// An object that nobody leases and the store keeps.
    fn cached_object(&self, cached: &CachedObject) -> Object {
        let kind = self.store.have(&cached.oid).map(|have| have.about.kind).unwrap_or_default();
        Object {
            oid: cached.oid.to_string(),
            content: Some(cached.oid.to_string()),
            kind: kind_name(kind).into(),
            size: Some(cached.size),
            path: None,
            ticket: None,
            terms: TicketTerms::default(),
            created: cached.used,
            held: Held::Cached,
        }
    }

    fn object(&self, lease: &Lease) -> Object {
        Object {
            oid: lease.oid.to_string(),
            content: lease.content.map(|oid| oid.to_string()),
            kind: kind_name(lease.about.kind).into(),
            size: lease.size,
            path: lease.path.as_ref().map(|path| display_name(path.as_os_str().as_encoded_bytes())),
            ticket: Some(self.ticket(lease.oid, lease.secret)),
            terms: told_terms(lease.secret.terms),
            created: lease.created,
            held: match lease.holder {
                Holder::Pinned => Held::Pinned,
                Holder::Session(_) => Held::Session,
            },
        }
    }
}

const fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Blob => "blob",
        ObjectKind::Tree => "tree",
    }
}

/// The paths that a request names.
fn source(request: &PutRequest) -> Result<PutSource, ApiError> {
    let paths: Vec<_> = std::iter::once(&request.path).chain(&request.more).cloned().collect();
    Ok(PutSource::new(&paths, &request.filters, request.name.clone())?.telling(request.metadata))
}

/// The API over a shared service.
#[derive(Clone)]
pub struct InProcess(pub Arc<Service>);

impl InProcess {
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.0);
        let working = tokio::task::spawn_blocking(move || work(&service));
        working.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
    }

    /// Runs a get within the limits, and counts what it brings; its events go to everybody who
    /// listens, too.
    async fn observed(&self, request: GetRequest, events: mpsc::Sender<Event>) -> Result<Summary, ApiError> {
        let place = request.output.as_ref().unwrap_or(&request.directory);
        let admitted = self.0.admission.begin(Direction::Get, place)?;
        let mut watch = Watch::new(Arc::clone(&self.0.metrics));
        let oid = parse_name(&request.ticket).map(|oid| oid.to_string()).unwrap_or_default();
        let transfer = self.0.transfers.begin_get(oid);
        let (passing, longer) = DaemonPassing::begin(&self.0, &request).unzip();
        if let Some(longer) = longer {
            let _ = events.send(Event::Ticket(longer)).await;
        }
        let (teller, mut inbox) = mpsc::channel(1);
        let handing_on = async {
            while let Some(event) = inbox.recv().await {
                watch.event(&event);
                transfer.report(&event);
                let _ = events.send(event).await;
            }
        };
        let (result, ()) = tokio::join!(get::get(&self.0, request, teller), handing_on);
        match &result {
            Ok(summary) => {
                watch.summary(summary);
                admitted.done();
                transfer.report(&Event::Summary(summary.clone()));
                // Of a tree that is not whole what this machine has from elsewhere would be served, too.
                passing.filter(|_| summary.failed == 0).map(|passing| tokio::spawn(passing.keep(false)));
            }
            Err(error) => transfer.report(&Event::Failed(error.clone())),
        }
        result
    }
}

/// Ends what looks at it when it is dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Completes with the reason when a ticket of this service is over. Of one that another process of this home took back its holders
/// are told before.
/// Well if as many nodes as `limit` says have all: then it is taken back.
async fn ticket_over(
    service: &Service,
    ticket: Option<Ticket>,
    limit: Option<Arc<FetchLimit>>,
    events: &mpsc::Sender<Event>,
) -> Result<(), ApiError> {
    let Some(ticket) = ticket else { return std::future::pending().await };
    tokio::select! {
        () = spent(limit) => service.take_back(&ticket),
        why = service.ticket_over(&ticket) => Err(why),
        () = service.withdrawals.taken_back_beside(ticket.oid, ticket.bound_secret()) => {
            let what = words::WAITS_FOR_HOLDERS.to_owned();
            let _ = events.send(Event::Waiting { what, seconds: Some(ALL_ASKED.as_secs()) }).await;
            tokio::time::sleep(ALL_ASKED).await;
            Err(words::share_taken_back())
        }
    }
}

async fn spent(limit: Option<Arc<FetchLimit>>) {
    match limit {
        Some(limit) => limit.spent().await,
        None => std::future::pending().await,
    }
}

async fn share(
    service: &Arc<Service>,
    request: ShareRequest,
    events: mpsc::Sender<Event>,
) -> Result<(), ApiError> {
    let mirrors = mirror_hints(&request.mirrors)?;
    service.door.connections.send_pace.set(request.limit_rate);
    let source = PutSource::new(&request.paths, &request.filters, request.name)?;
    let source = source.telling(request.metadata);
    service.door.listen(source.key().as_os_str().as_bytes(), request.listen.as_slice()).await?;
    let mut fetches = service.door.watch_fetches();
    let terms = terms(&request.terms)?;
    let (mut shared, limit) = put::share_with(service, source, terms, request.max_fetches).await?;
    shared.reply.ticket = with_mirrors(shared.reply.ticket, mirrors);
    service.door.open();
    let mut reading = Some(shared.reading);
    let mut over = std::pin::pin!(ticket_over(service, shared.reply.ticket.parse().ok(), limit, &events));
    let _ = events.send(Event::Ticket(shared.reply)).await;
    loop {
        let read = async {
            match &mut reading {
                Some(reading) => reading.await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            // In this order: how the last fetch ended is told before the share ends by it.
            biased;
            Some(fetch) = fetches.recv() => fetch,
            result = &mut over => return result,
            Some((path, error)) = shared.failures.recv() => Event::FileFailed { path, error },
            read = read => {
                reading = None;
                let read = read.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
                Event::Summary(Summary { oid: read.oid, bytes: read.size.unwrap_or(0), ..Summary::here() })
            }
        };
        let _ = events.send(event).await;
    }
}

impl PutsInParts for InProcess {
    fn open_put(&self, request: OpenPutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { parts::open(&self.0, &request).map(|(_, reply)| reply) })
    }

    fn put_part<'a>(
        &'a self,
        id: String,
        offset: u64,
        part: Input<'a>,
    ) -> BoxFuture<'a, Result<PartReply, ApiError>> {
        Box::pin(async move {
            let position = Part { offset, boundary: false };
            parts::append(&self.0, &parse_name(&id)?, position, part).await
        })
    }

    fn commit_put(&self, id: String) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { parts::commit(&self.0, &parse_name(&id)?).await })
    }

    fn abort_put(&self, id: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { parts::abort(&self.0, &parse_name(&id)?) })
    }
}

impl Api for InProcess {
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move {
            let holder = self.0.sessions.holder(request.session.as_deref())?;
            let boundaries = Boundaries::new(&request.boundaries)?;
            let how = (terms(&request.terms)?, boundaries);
            put::put_named(&self.0, source(&request)?, holder, how).await
        })
    }

    fn put_to_end<'a>(
        &'a self,
        request: PutRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(async move {
            let holder = self.0.sessions.holder(request.session.as_deref())?;
            let boundaries = Boundaries::new(&request.boundaries)?;
            let how = (terms(&request.terms)?, boundaries);
            put::put_to_end(&self.0, source(&request)?, holder, how, events).await
        })
    }

    fn put_stream<'a>(
        &'a self,
        request: OpenPutRequest,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>> {
        Box::pin(async move { put::put_stream(&self.0, &request, input, ticket).await })
    }

    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(self.observed(request, events))
    }

    fn content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Content, ApiError>> {
        Box::pin(async move {
            let opened = content::open(&self.0, &request).await?;
            let (oid, size) = (opened.oid.map(|oid| oid.to_string()), opened.size);
            let bytes = Parts::new(opened.in_order(0..size.unwrap_or(u64::MAX)));
            Ok(Content { oid, size, bytes })
        })
    }

    fn copy(
        &self,
        request: CopyRequest,
        events: mpsc::Sender<CopyEvent>,
    ) -> BoxFuture<'_, Result<CopySummary, ApiError>> {
        Box::pin(async move { copy::run(&self.0, request, events).await })
    }

    fn index(
        &self,
        request: IndexRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Indexed, ApiError>> {
        Box::pin(async move {
            // Each reads with all cores; a further one waits.
            let _turn = self.0.indexing.lock().await;
            let cancel = Cancel::default();
            let _ended = CancelOnDrop(cancel.clone());
            self.blocking(move |service| {
                let report = &mut |event| drop(events.blocking_send(event));
                index(&service.index_host(), &request.directories, &cancel, report)
            })
            .await
        })
    }

    fn share(
        &self,
        request: ShareRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(share(&self.0, request, events))
    }

    fn get_and_stay(
        &self,
        request: GetRequest,
        stay: StayRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Infallible, ApiError>> {
        Box::pin(staying::get_and_stay(&self.0, request, stay, events))
    }

    fn session(&self) -> BoxFuture<'_, Result<Session, ApiError>> {
        Box::pin(async move {
            let open = Open::begin(&self.0)?;
            Ok(Session { id: open.name(), open: Box::new(open) })
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<Object>, ApiError>> {
        Box::pin(self.blocking(move |service| {
            let leases = service.store.leases().map_err(|error| words::store(&error))?;
            let mut objects: Vec<_> = leases.iter().map(|lease| service.object(lease)).collect();
            if request.cached {
                let cached = service.store.cache().objects().map_err(|error| words::store(&error))?;
                objects.extend(cached.iter().map(|cached| service.cached_object(cached)));
            }
            Ok(objects)
        }))
    }

    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.blocking(move |service| {
            if let Some(shared) = service.shared_ticket(&name)? {
                return service.take_back(&shared);
            }
            let oid = service.leased(&name)?;
            let leases = service.store.leases().map_err(|error| words::store(&error))?;
            match service.store.done(&oid).map_err(|error| words::store(&error))? {
                true => {
                    let ended = leases.iter().find(|lease| lease.oid == oid);
                    ended.iter().for_each(|lease| service.withdraw(lease));
                    service.trim_cache().map_err(|error| words::store(&error))
                }
                false => Err(ApiError::new(ErrorKind::NotFound, format!("nothing is put as {oid}"))
                    .hint("'tow ls' lists what is")),
            }
        }))
    }

    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReply, ApiError>> {
        Box::pin(self.blocking(move |service| service.collect(request)))
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>> {
        Box::pin(self.blocking(|service| {
            let leases = service.store.leases().map_err(|error| words::store(&error))?;
            Ok(Status {
                node: service.node_id().to_string(),
                listening: service.door.addresses().iter().map(SocketAddr::to_string).collect(),
                version: env!("CARGO_PKG_VERSION").into(),
                objects: leases.len() as u64,
                connections: service.door.limits.connections(),
                sessions: service.sessions.len() as u64,
                open_puts: service.open_puts.len() as u64,
                gets: service.transfers.gets(),
                copies: service.admission.copies(),
            })
        }))
    }

    fn events(&self) -> BoxFuture<'_, Result<mpsc::Receiver<TransferEvent>, ApiError>> {
        Box::pin(async move { Ok(self.0.transfers.listen()) })
    }
}
