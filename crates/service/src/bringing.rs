//! A site's cache at work: it fetches what the site's machines hand it tickets for, and serves that by the tickets' right
//! (`docs/design/site-cache.md`).
//!
//! ```text
//!   machines ── ticket ──► Bringer ── one flight a ticket ──► session ──► store, as its own objects
//!      ▲                                                                    │
//!      └──────────────── by the ticket's right, also while it comes ◄───────┘
//! ```
//!
//! Nobody gets by a ticket what came by another one: the ticket's sender must say that the ticket is right, and what it did not
//! send before is fetched of it again. After a crash what was complete is served again, and what had begun to come goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet};
use towpath_api::{ApiError, ErrorKind, GetRequest};
use towpath_config::shares::TicketKind;
use towpath_content::lock::lock;
use towpath_content::node_id::hex;
use towpath_content::pieces::Layout;
use towpath_content::tree::{Decoder, Event, Kind, LEFT_OUT};
use towpath_content::{Oid, Ticket};
use towpath_peer_server::brought::{BringStep, BroughtTickets, TicketCache};
use towpath_store::{About, Availability, ObjectKind, Store};
use towpath_targets::kept::KeptObject;
use towpath_transfer::want::Coverage;
use towpath_transfer::{FetchError, Group, ObjectRequest, Outcome, Session, Target};
use towpath_words as words;

use crate::getting::GetUnderWay;
use crate::left::{self, LeftFile, flight};
use crate::metrics::Direction;
use crate::state::Service;
use crate::staying::{DaemonPassing, name};

/// Delay after which a machine asks again.
const LATER: Duration = Duration::from_millis(100);
/// Interval at which it is noted how much has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time for which a sender is tried before the machines are sent there.
const SENDER: Duration = Duration::from_secs(3);
/// Times that it is asked what a live object became, each after a look's interval.
const BOUND: usize = 60;
/// Tickets by which something is served at once. The one that was used longest ago goes first.
const MOST_SERVED: usize = 192;
/// Files of a tree that are fetched at once.
const FILES: usize = 32;
/// What an interrupted flight left, and nobody asked for since, is removed after this.
const LEFT: Duration = Duration::from_secs(24 * 3600);
/// Interval at which it is looked for that, besides after each flight.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// See the head of this module.
struct Bringer {
    service: Weak<Service>,
    /// Itself, for flights.
    own: Weak<Self>,
    tickets: Mutex<BroughtTickets>,
    /// What is served while it comes.
    coming: Mutex<Vec<DaemonPassing>>,
    /// What is here and served, the last used at the end.
    served: Mutex<VecDeque<(Vec<u8>, AbortHandle)>>,
}

impl TicketCache for Bringer {
    fn bring(&self, ticket: &Ticket, may_begin: bool) -> Result<(), Outcome> {
        let name = name(ticket);
        let step = lock(&self.tickets).ask(&name, ticket.oid, may_begin, Instant::now());
        match step {
            BringStep::Draw => {
                self.used(&name);
                Ok(())
            }
            BringStep::Later => Err(Outcome::RetryLater(LATER)),
            BringStep::Refuse(why) => Err(Outcome::Refused(why)),
            BringStep::Begin { was_here } => {
                if let Some((service, bringer)) = self.service.upgrade().zip(self.own.upgrade()) {
                    tokio::spawn(BringFlight::new(service, bringer, ticket, name).run(was_here));
                }
                Err(Outcome::RetryLater(LATER))
            }
        }
    }
}

impl Bringer {
    /// Serves what is here by a ticket, until that is over or others are used more.
    fn serve(&self, name: Vec<u8>, passing: DaemonPassing) {
        let (own, over) = (Weak::clone(&self.own), name.clone());
        let keeping = async move {
            passing.keep(true).await;
            // The ticket is over.
            if let Some(bringer) = own.upgrade() {
                lock(&bringer.tickets).forget(&over);
            }
        };
        let task = tokio::spawn(keeping).abort_handle();
        let mut served = lock(&self.served);
        served.push_back((name, task));
        while served.len() > MOST_SERVED
            && let Some((oldest, task)) = served.pop_front()
        {
            task.abort();
            lock(&self.tickets).forget(&oldest);
        }
    }

    /// What is served by a ticket was used.
    fn used(&self, name: &[u8]) {
        let mut served = lock(&self.served);
        if let Some(at) = served.iter().position(|(served, _)| served == name)
            && let Some(used) = served.remove(at)
        {
            served.push_back(used);
        }
    }

    /// True if what a ticket names is served still.
    fn serves(&self, name: &[u8]) -> bool {
        let mut served = lock(&self.served);
        served.retain(|(_, task)| !task.is_finished());
        served.iter().any(|(served, _)| served == name)
    }

    /// Removes what interrupted flights left that nobody asked for since, and of the rest the oldest, as far as it is more than the
    /// whole cache may be.
    fn sweep(&self, service: &Service) {
        // Held meanwhile: no flight goes on with what is being removed.
        let tickets = lock(&self.tickets);
        let coming: Vec<String> = tickets.coming_names().map(flight).collect();
        let is_coming = |file: &LeftFile| {
            let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
            coming.iter().any(|flight| name.starts_with(flight.as_bytes()))
        };
        let (left, limit) = (left::files(service.home.data()), service.config().store.cache.0);
        let mut all: u64 = left.iter().map(|file| file.bytes).sum();
        for file in left.iter().filter(|file| !is_coming(file)) {
            let age = SystemTime::now().duration_since(file.written).unwrap_or_default();
            if age <= LEFT && all <= limit {
                continue;
            }
            match std::fs::remove_file(&file.path) {
                Ok(()) => all -= file.bytes,
                Err(error) => tracing::warn!(%error, "what an interrupted transfer left can't be removed"),
            }
        }
    }

    /// `oid` is about to be here by the ticket of this name: by others, which are not proved right yet, it is served no more.
    fn about_to_keep(&self, oid: &Oid, by: &[u8]) {
        let mut coming = lock(&self.coming);
        coming.retain(|passing| {
            let (ticket, is_others) = (passing.ticket(), passing.ticket().oid == *oid);
            let other = name(ticket);
            let stays = !is_others || other == by;
            if !stays {
                lock(&self.tickets).can_draw(&other, false);
            }
            stays
        });
    }
}

/// What one ticket names, on its way to the store.
struct BringFlight {
    service: Arc<Service>,
    bringer: Arc<Bringer>,
    ticket: Ticket,
    name: Vec<u8>,
    request: GetRequest,
}

impl BringFlight {
    fn new(service: Arc<Service>, bringer: Arc<Bringer>, ticket: &Ticket, name: Vec<u8>) -> Self {
        let request = GetRequest { ticket: ticket.to_string(), no_upload: true, ..GetRequest::default() };
        Self { service, bringer, ticket: ticket.clone(), name, request }
    }

    async fn run(self, was_here: bool) {
        let (bringer, oid) = (Arc::clone(&self.bringer), self.ticket.oid);
        let result = match was_here && bringer.serves(&self.name) && self.is_all_here().await {
            true => Ok(()),
            false => self.bring().await,
        };
        if let Err(error) = &result {
            tracing::warn!(%oid, error = error.message, "the site's machines are not brought this");
        }
        let result = result.map_err(|error| error.message);
        let service = Arc::clone(&self.service);
        lock(&bringer.tickets).ended(&self.name, oid, result, Instant::now());
        let trimmed = tokio::task::spawn_blocking(move || {
            bringer.sweep(&service);
            service.trim_cache()
        });
        if let Ok(Err(error)) = trimmed.await {
            tracing::warn!(%error, "the cache could not be trimmed");
        }
    }

    async fn bring(&self) -> Result<(), ApiError> {
        let service = &self.service;
        let admitted = service.admission.begin(Direction::Get, service.home.data())?;
        let _permit = service.in_flight.permit().await?;
        let get = Arc::new(GetUnderWay::new(service, &self.request)?);
        let fetched = tokio::select! {
            fetched = self.fetch(&get) => fetched,
            why = service.ticket_over(&self.ticket) => Err(why),
        };
        let coming = self.take_coming();
        fetched?;
        get.finish(true).await;
        if !self.bringer.serves(&self.name) {
            let passing = coming.map_or_else(|| self.passing(), Ok)?;
            if !passing.record().await {
                return Err(failed("its sender did not sign what it became"));
            }
            self.bringer.serve(self.name.clone(), passing);
        }
        admitted.done();
        Ok(())
    }

    /// Serves by the ticket from now on.
    fn passing(&self) -> Result<DaemonPassing, ApiError> {
        let passing =
            DaemonPassing::of(&self.service, self.request.clone(), self.ticket.clone(), TicketKind::Cached);
        passing.ok_or_else(|| failed("the cache passes on as much as it may"))
    }

    /// What was served while it came.
    fn take_coming(&self) -> Option<DaemonPassing> {
        let mut coming = lock(&self.bringer.coming);
        let at = coming.iter().position(|passing| name(passing.ticket()) == self.name)?;
        Some(coming.swap_remove(at))
    }

    /// Fetches what the ticket names of who gave it.
    async fn fetch(&self, get: &Arc<GetUnderWay>) -> Result<(), ApiError> {
        let described = self.described(get).await;
        let (about, layout) = described.map_err(|outcome| words::fetch(&FetchError::Ended(outcome)))?;
        let content = self.content(get).await?;
        self.check_size(layout.filter(|_| !get.oid.is_live()).map_or(0, |layout| layout.size()))?;
        let is_here = get.may_use(&content) && self.has(&content);
        // What others' tickets brought is not served by this one before its sender sent it, too.
        let can_draw = about.kind == ObjectKind::Blob && !get.oid.is_live() && !self.has(&content);
        let root = match about.kind {
            ObjectKind::Tree => Arc::clone(&get.for_tree),
            ObjectKind::Blob => Arc::clone(&get.plugins.root),
        };
        let session = Arc::new(Session::start(root, get.context.clone(), get.config));
        let fetching = async {
            if !is_here {
                let target = self.target(&content, &about, can_draw)?;
                // What others are told of it while it comes the session has to ask itself.
                let request = get.request(target, layout.filter(|_| !can_draw), Group::default());
                if can_draw {
                    lock(&self.bringer.coming).push(self.passing()?);
                }
                session.fetch(request).await.map_err(|error| words::fetch(&error))?;
                get.note_sent(&content);
            }
            match about.kind {
                ObjectKind::Tree => self.files(get, &session, content).await,
                ObjectKind::Blob => Ok(()),
            }
        };
        tokio::select! {
            fetched = fetching => fetched,
            why = self.note_growth(&session, can_draw) => Err(why),
        }
    }

    /// What the ticket names, as its sender says, which is tried for a while.
    async fn described(&self, get: &GetUnderWay) -> Result<(About, Option<Layout>), Outcome> {
        let start = Instant::now();
        loop {
            match get.ask_others(true).await {
                Err(Outcome::RetryLater(delay)) if start.elapsed() < SENDER => {
                    tokio::time::sleep(delay.max(LOOK_EVERY)).await;
                }
                answer => return answer,
            }
        }
    }

    /// The content that the ticket names. What is still being produced is for each machine to follow itself.
    async fn content(&self, get: &GetUnderWay) -> Result<Oid, ApiError> {
        for _ in 0..BOUND {
            if let Some(content) = get.content().await {
                return Ok(content);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(failed("it is still being produced"))
    }

    fn has(&self, oid: &Oid) -> bool {
        self.service.store.is_here(oid)
    }

    fn check_size(&self, size: u64) -> Result<(), ApiError> {
        match size > self.service.config().store.cache.0 {
            true => Err(failed("it is larger than the cache ('cache' in [store])")),
            false => Ok(()),
        }
    }

    /// Where an object goes on its way.
    fn target(&self, oid: &Oid, about: &About, announced: bool) -> Result<Arc<dyn Target>, ApiError> {
        let folder = left::folder(self.service.home.data());
        let io = |error| words::io("write", &folder, &error);
        std::fs::create_dir_all(&folder).map_err(io)?;
        let path = folder.join(format!("{}-{}", flight(&self.name), hex(oid.digest())));
        let (bringer, by) = (Arc::clone(&self.bringer), self.name.clone());
        let before = move |oid: &Oid| bringer.about_to_keep(oid, &by);
        let target = KeptObject::open(&path, Arc::clone(&self.service.store), about.clone(), before);
        Ok(Arc::new(target.map_err(io)?.announced(announced)))
    }

    /// Notes what comes, and from when on it can be drawn on, if it `can` be while it comes; until it is dropped. The error is that it
    /// is too large, which of what was live shows only now.
    async fn note_growth(&self, session: &Session, mut can: bool) -> ApiError {
        let (progress, mut ticks) = (session.progress(), tokio::time::interval(LOOK_EVERY));
        loop {
            ticks.tick().await;
            let (done, there) = progress.with(|now| (now.done, now.done.wrapping_add(now.objects)));
            if let Err(why) = self.check_size(done) {
                return why;
            }
            // Nothing can be proved before the values of all pieces are here.
            let is_announced = can && self.service.store.get_descriptors(&self.ticket.oid, 0..1).is_ok();
            can &= !is_announced;
            let mut tickets = lock(&self.bringer.tickets);
            tickets.grew(&self.name, there, Instant::now());
            if is_announced {
                tickets.can_draw(&self.name, true);
            }
        }
    }

    /// Fetches the files of a tree whose descriptor is here. One that its sender cannot send is left to the machines.
    async fn files(&self, get: &Arc<GetUnderWay>, session: &Arc<Session>, tree: Oid) -> Result<(), ApiError> {
        let (mut files, decoding) = tree_files(&self.service, tree);
        let (mut fetching, mut sum) = (JoinSet::new(), 0_u64);
        let mut under_way = Vec::new();
        while let Some(file) = files.recv().await {
            sum = sum.saturating_add(file.size);
            self.check_size(sum)?;
            if under_way.contains(&file.oid) || get.may_use(&file.oid) && self.has(&file.oid) {
                continue;
            }
            if fetching.len() >= FILES {
                self.ended(get, fetching.join_next().await, &mut under_way)?;
            }
            let (session, oid) = (Arc::clone(session), file.oid);
            let request = file.request(self.target(&oid, &About::default(), false)?);
            under_way.push(oid);
            fetching.spawn(async move { (oid, session.fetch(request).await.map(drop)) });
        }
        while let Some(ended) = fetching.join_next().await {
            self.ended(get, Some(ended), &mut under_way)?;
        }
        decoding.await.map_err(|error| failed(&error.to_string()))?
    }

    /// A file has come, or not.
    fn ended(
        &self,
        get: &GetUnderWay,
        ended: Option<Result<EndedFile, JoinError>>,
        under_way: &mut Vec<Oid>,
    ) -> Result<(), ApiError> {
        let Some(ended) = ended else { return Ok(()) };
        let (oid, result) = ended.map_err(|error| failed(&error.to_string()))?;
        under_way.retain(|other| *other != oid);
        match result {
            Ok(()) => get.note_sent(&oid),
            Err(FetchError::Ended(outcome)) => tracing::info!(%oid, ?outcome, "a file is not kept"),
            Err(error) => return Err(words::fetch(&error)),
        }
        Ok(())
    }

    /// True if nothing was evicted of what the ticket names.
    async fn is_all_here(&self) -> bool {
        let content = self.service.grants.content_of(&self.ticket.oid);
        if !self.has(&content) {
            return false;
        }
        let is_tree = |have: Availability| have.about.kind == ObjectKind::Tree;
        if !self.service.store.have(&content).is_ok_and(is_tree) {
            return true;
        }
        let (mut files, decoding) = tree_files(&self.service, content);
        while let Some(file) = files.recv().await {
            if !self.has(&file.oid) {
                return false;
            }
        }
        matches!(decoding.await, Ok(Ok(())))
    }
}

/// A file that has come, or not.
type EndedFile = (Oid, Result<(), FetchError>);

/// A file of a tree that has bytes of its own.
struct KeptFile {
    oid: Oid,
    size: u64,
    name: Vec<u8>,
    block: u64,
}

impl KeptFile {
    fn request(self, target: Arc<dyn Target>) -> ObjectRequest {
        let Self { oid, size, name, block } = self;
        let coverage = Some(Coverage { block });
        let group = Group { path: name, size: Some(size), coverage, ..Group::default() };
        ObjectRequest { oid, size: Some(size), group: Arc::new(group), target, recipe: None }
    }
}

/// The files of a tree whose descriptor is in the store, as they stand there.
fn tree_files(
    service: &Arc<Service>,
    tree: Oid,
) -> (mpsc::Receiver<KeptFile>, JoinHandle<Result<(), ApiError>>) {
    let (files, inbox) = mpsc::channel(FILES);
    let store = Arc::clone(&service.store);
    let decoding = tokio::task::spawn_blocking(move || {
        let layout: Layout = store.have(&tree).map_err(|error| words::store(&error))?.layout;
        let (mut decoder, mut piece) = (Decoder::new(), Vec::new());
        for index in 0..layout.count() {
            piece.clear();
            store.read_piece(&tree, index, &mut piece).map_err(|error| words::store(&error))?;
            let mut rest = &piece[..];
            while !rest.is_empty() {
                rest = &rest[decoder.feed(rest)..];
                while let Some(located) = decoder.next_event().map_err(|error| failed(&error.to_string()))? {
                    let Event::Leaf(entry) = located.event else { continue };
                    let Kind::File { size: size @ 1.., oid: Some(oid), .. } = entry.kind else { continue };
                    let file = KeptFile { oid, size, name: entry.name, block: located.block };
                    if oid != LEFT_OUT && located.content.is_empty() && files.blocking_send(file).is_err() {
                        return Ok(());
                    }
                }
            }
        }
        decoder.finish().map_err(|error| failed(&error.to_string()))
    });
    (inbox, decoding)
}

fn failed(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Failed, why)
}

/// From now on the service can be a site's cache. It goes on with what the last daemon served so.
pub(crate) fn resume(service: &Arc<Service>) {
    let bringer = Arc::new_cyclic(|own| Bringer {
        service: Arc::downgrade(service),
        own: Weak::clone(own),
        tickets: Mutex::default(),
        coming: Mutex::default(),
        served: Mutex::default(),
    });
    for passing in DaemonPassing::recorded(service, TicketKind::Cached) {
        let (name, oid) = (name(passing.ticket()), passing.ticket().oid);
        lock(&bringer.tickets).ended(&name, oid, Ok(()), Instant::now());
        bringer.serve(name, passing);
    }
    bringer.sweep(service);
    tokio::spawn(sweep_on(Arc::downgrade(service), Arc::downgrade(&bringer)));
    service.grants.bring_by(bringer);
}

/// Sweeps now and then, as long as there is something to sweep for.
async fn sweep_on(service: Weak<Service>, bringer: Weak<Bringer>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some((service, bringer)) = service.upgrade().zip(bringer.upgrade()) else { return };
        let _ = tokio::task::spawn_blocking(move || bringer.sweep(&service)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use towpath_config::{Bytes, Config, Home};

    use super::*;
    use crate::Options;

    const HOUR: Duration = Duration::from_secs(3600);

    fn service(folder: &Path, cache: u64) -> Arc<Service> {
        let mut config = Config::default();
        config.store.cache = Bytes(cache);
        Service::open(Home::under(folder), Options { config, ..Options::default() }).unwrap()
    }

    fn bringer(service: &Arc<Service>) -> Arc<Bringer> {
        Arc::new_cyclic(|own| Bringer {
            service: Arc::downgrade(service),
            own: Weak::clone(own),
            tickets: Mutex::default(),
            coming: Mutex::default(),
            served: Mutex::default(),
        })
    }

    /// What the flight of a ticket left so long ago.
    fn leave(service: &Service, name: &[u8], age: Duration, bytes: usize) {
        let folder = left::folder(service.home.data());
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}-object", flight(name)));
        std::fs::write(&path, vec![7; bytes]).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    fn names(service: &Service) -> Vec<String> {
        let left = left::files(service.home.data());
        left.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn what_is_left_goes_after_a_day_and_when_it_is_too_much_but_not_what_comes() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path(), 1 << 20);
        let bringer = bringer(&service);
        let begin = |name: &[u8]| lock(&bringer.tickets).ask(name, Oid::of(name), true, Instant::now());
        assert!(matches!(begin(b"coming"), BringStep::Begin { .. }));
        leave(&service, b"coming", 30 * HOUR, 100 << 10);
        leave(&service, b"old", 25 * HOUR, 100 << 10);
        leave(&service, b"lately", 3 * HOUR, 300 << 10);
        leave(&service, b"just now", HOUR, 700 << 10);
        bringer.sweep(&service);
        let is_left = |name: &[u8]| names(&service).contains(&format!("{}-object", flight(name)));
        assert_eq!(
            [&b"coming"[..], b"old", b"lately", b"just now"].map(is_left),
            [true, false, false, true],
            "a day old, and too much with the others"
        );
    }

    #[tokio::test]
    async fn what_is_left_counts_in_the_caches_limit() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path(), 1 << 20);
        let live = Oid::Live([1; 32]);
        service.store.put_init(&live, &About::default()).unwrap();
        service.store.put_data(&live, &vec![3; 600 << 10]).unwrap();
        let oid = service.store.put_commit(&live).unwrap();
        service.trim_cache().unwrap();
        assert!(service.store.have(&oid).is_ok(), "there is room for it");
        leave(&service, b"left", HOUR, 600 << 10);
        service.reconfigure((*service.config()).clone());
        service.trim_cache().unwrap();
        assert!(service.store.have(&oid).is_err(), "with what an interrupted flight left there is none");
    }
}
