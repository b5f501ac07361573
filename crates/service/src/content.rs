//! Objects as streams of bytes, for applications: in order, from any place on, or as they come.
//!
//! Content that this machine has is read piece by piece from the store, and each piece is checked. The rest
//! arrives in a spool (`towpath_targets::in_flight`). A reader that is slow holds up nobody.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_api::{ApiError, ContentRequest, ErrorKind, Event, GetRequest, Progress, SearchEffort, Summary};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::{self, Layout};
use towpath_store::{Descriptors, DiskStore, Hold, State, Store};
use towpath_transfer::intervals::Intervals;

use crate::arriving::{refuse_trees, start, start_part};
use crate::getting::{GetUnderWay, behind};
use crate::state::Service;
use crate::transfers::PROGRESS_EVERY;
use crate::transfers::Transfer;
use crate::web_places::WebPlaces;
use towpath_limits::read_budget::HeldBody;
use towpath_targets::in_flight::{Arrival, ArrivalFacts, FlightGroup, FlightRole};
use towpath_targets::spool::Next;
use towpath_words as words;

/// Bytes handed on at once.
const PART: u64 = 256 << 10;
/// Parts on their way from the reader to the body; [`towpath_limits::read_budget`] counts them too.
const AHEAD: usize = 1;
/// Number of times someone waits for another's transfer of the same object before going alone.
const MAX_WAITS: usize = 8;

/// An object that can be read.
pub struct Opened {
    /// Its content, if known.
    pub oid: Option<Oid>,
    /// Its bytes, if known.
    pub size: Option<u64>,
    /// True if all that crosses a network for it is encrypted.
    pub(crate) encrypted: bool,
    source: ContentOrigin,
    body: HeldBody,
    transfer: Transfer,
}

enum ContentOrigin {
    Stored {
        service: Arc<Service>,
        oid: Oid,
        layout: Layout,
        /// The first piece, which was read to see whether it can be: for whoever reads from there.
        first: Mutex<Option<Bytes>>,
        _hold: Hold,
    },
    Arriving(Arc<Arrival>),
}

/// A get of what `request` names.
pub(crate) async fn under_way(
    service: &Arc<Service>,
    request: &GetRequest,
) -> Result<Arc<GetUnderWay>, ApiError> {
    let web = WebPlaces::of(request).await?;
    behind(service, request, &web, None).map(Arc::new)
}

/// Opens what `request` names; returns when it is known to be there, and before its bytes are.
pub async fn open(service: &Arc<Service>, request: &ContentRequest) -> Result<Opened, ApiError> {
    let request = as_get(request);
    open_whole(under_way(service, &request).await?, &request).await
}

/// The same for who needs only what `choose` says of an object of that name and size; `None` is all.
/// Bytes that are not here yet are then fetched without the rest, unless the whole is on its way already.
pub async fn open_part(
    service: &Arc<Service>,
    request: &ContentRequest,
    choose: impl FnOnce(&Oid, u64) -> Option<Range<u64>>,
) -> Result<Opened, ApiError> {
    let request = as_get(request);
    let get = under_way(service, &request).await?;
    // A live object's size is known only at its end.
    if get.oid.is_live() {
        return open_whole(get, &request).await;
    }
    if let Some(opened) = stored(&get).await? {
        return Ok(opened);
    }
    if let Some(arrival) = service.in_flight.find(&get.key(FlightGroup::All)) {
        return arriving(get, arrival).await;
    }
    let described = get.describe(false).await?;
    let part = described.1.and_then(|layout| choose(&get.oid, layout.size()));
    match part {
        Some(part) => {
            let arrival = start_part(Arc::clone(&get), described, part)?;
            arriving(get, arrival).await
        }
        None => open_whole(get, &request).await,
    }
}

/// The same of what `get` asks for, which was made of `request`. Whoever waits for another's bytes needs no get meanwhile: a sender
/// serves only so many connections, and those that nobody needs would keep out the one that brings them.
pub(crate) async fn open_whole(mut get: Arc<GetUnderWay>, request: &GetRequest) -> Result<Opened, ApiError> {
    let (service, mut group) = (Arc::clone(&get.service), FlightGroup::All);
    for _ in 0..MAX_WAITS {
        if let Some(opened) = stored(&get).await? {
            return Ok(opened);
        }
        let lead = Arc::clone(&get);
        let flight = service.in_flight.enter(get.key(group), |leading| {
            let started = start(lead, Some(leading));
            let weak = started.as_ref().map(Arc::downgrade).unwrap_or_default();
            (started, weak)
        });
        match flight {
            FlightRole::Lead(arrival) => return arriving(get, arrival?).await,
            FlightRole::Join(arrival) => return arriving(get, arrival).await,
            FlightRole::Wait(ended) if get.content().await.is_some() => {
                drop(get);
                ended.cancelled().await;
                get = under_way(&service, request).await?;
            }
            FlightRole::Wait(_) => group = FlightGroup::Streams,
        }
    }
    let arrival = start(Arc::clone(&get), None)?;
    arriving(get, arrival).await
}

/// A stream's request, as a get.
pub(crate) fn as_get(request: &ContentRequest) -> GetRequest {
    GetRequest {
        ticket: request.ticket.clone(),
        from: Vec::new(),
        output: None,
        directory: "/".into(),
        reuse: request.reuse,
        limit_rate: request.limit_rate,
        bind: Vec::new(),
        timeout: request.timeout,
        priority: request.priority,
        require_encryption: request.require_encryption,
        // What comes is handed on, and there is no file that others could be sent.
        no_upload: true,
        upload_rate: 0,
        // A stream has no place on the disk that anything could lie near.
        no_search: true,
        search: Vec::new(),
        search_effort: SearchEffort::Some,
        list: false,
        paths: Vec::new(),
        filters: Vec::new(),
        preserve: None,
        update: None,
    }
}

/// A transfer as its events name it.
fn begin(service: &Service, asked: &Oid) -> Transfer {
    service.transfers.begin_get(asked.to_string())
}

async fn arriving(get: Arc<GetUnderWay>, arrival: Arc<Arrival>) -> Result<Opened, ApiError> {
    let (service, asked) = (Arc::clone(&get.service), get.oid);
    // Another get may be what brings it.
    drop(get);
    let ArrivalFacts { size, encrypted } = arrival.described().await?;
    Ok(Opened {
        oid: Some(asked).filter(|oid| !oid.is_live()),
        size,
        encrypted,
        source: ContentOrigin::Arriving(arrival),
        body: HeldBody::new(&service.read_budget),
        transfer: begin(&service, &asked),
    })
}

/// The object, if this machine has it and may use it.
async fn stored(get: &Arc<GetUnderWay>) -> Result<Option<Opened>, ApiError> {
    let Some(oid) = get.known_content().await else { return Ok(None) };
    let (service, get) = (Arc::clone(&get.service), Arc::clone(get));
    let budget = Arc::clone(&service.read_budget);
    let _permit = budget.cutting().await;
    let looking = tokio::task::spawn_blocking(move || {
        let have = get.may_use(&oid).then(|| service.store.have(&oid).ok()).flatten();
        let Some(have) = have.filter(|have| have.state == State::Complete) else { return Ok(None) };
        refuse_trees(&have.about)?;
        let (size, layout) = (Some(have.layout.size()), have.layout);
        let (transfer, body) = (begin(&service, &get.oid), HeldBody::new(&service.read_budget));
        // A file that it refers to may have changed: then it is not here.
        let Ok((first, hold)) = held(&service.store, &oid, &layout, &body) else { return Ok(None) };
        let source = ContentOrigin::Stored { service, oid, layout, first: Mutex::new(first), _hold: hold };
        Ok(Some(Opened { oid: Some(oid), size, encrypted: true, source, body, transfer }))
    });
    looking.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// Keeps an object from being evicted, and reads its first piece, which shows whether it can be read. The piece is returned
/// if there is room for it, so that a byte store need not be asked for it twice.
fn held(
    store: &DiskStore,
    oid: &Oid,
    layout: &Layout,
    body: &HeldBody,
) -> Result<(Option<Bytes>, Hold), ApiError> {
    if layout.size() == 0 {
        return Ok((None, store.hold(oid).map_err(|error| words::store(&error))?));
    }
    let (len, room) = (layout.len(0), body.room_now(layout.len(0)));
    let mut bytes = Vec::new();
    let hold = store.hold_piece(oid, 0, &mut bytes).map_err(|error| words::store(&error))?;
    check_piece(store, oid, layout, 0, &bytes)?;
    Ok((room.map(|room| room.hold(bytes, 0..len as usize)), hold))
}

/// Reads a piece, and checks it as what comes from anywhere is checked.
fn checked_piece(store: &dyn Store, oid: &Oid, layout: &Layout, index: u64) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    store.read_piece(oid, index, &mut bytes).map_err(|error| words::store(&error))?;
    check_piece(store, oid, layout, index, &bytes).map(|()| bytes)
}

fn check_piece(
    store: &dyn Store,
    oid: &Oid,
    layout: &Layout,
    index: u64,
    bytes: &[u8],
) -> Result<(), ApiError> {
    let expected = match layout.count() {
        1 => Some(*oid.digest()),
        _ => {
            let proof = store.get_descriptors(oid, index..index + 1).map_err(|error| words::store(&error))?;
            let Descriptors::Proof(nodes) = proof else { return Err(damaged(oid)) };
            let values = pieces::verify(oid.digest(), layout, index..index + 1, &nodes);
            values.ok().and_then(|values| values.first().copied())
        }
    };
    match expected == Some(layout.value(index, bytes)) {
        true => Ok(()),
        false => Err(damaged(oid)),
    }
}

fn damaged(oid: &Oid) -> ApiError {
    ApiError::new(ErrorKind::Corrupt, format!("what this machine has of {oid} is damaged"))
        .hint("'tow gc --all' removes it from the cache; then get it again")
}

/// Bytes with their place in the object; an error is the end of what can be had.
pub type PlacedBytes = io::Result<(u64, Bytes)>;

impl Opened {
    /// The arrival that it comes from, if it is on its way.
    pub(crate) fn arrival(&self) -> Option<Arc<Arrival>> {
        match &self.source {
            ContentOrigin::Stored { .. } => None,
            ContentOrigin::Arriving(arrival) => Some(Arc::clone(arrival)),
        }
    }

    /// The bytes of `range` in order. The channel ends after the last one, and only then.
    pub fn in_order(self, range: Range<u64>) -> mpsc::Receiver<io::Result<Bytes>> {
        let (parts, inbox) = mpsc::channel(AHEAD);
        if let Some(bytes) = self.source.at_hand(&range) {
            // Of what is small no task has to be made.
            let delivered = DeliveredBytes { bytes: bytes.len() as u64, last: None };
            self.report_end(&Ok(()), &delivered, self.oid);
            let _ = parts.try_send(Ok(bytes));
            return inbox;
        }
        tokio::spawn(async move {
            let mut delivered = DeliveredBytes::default();
            let sent = tokio::select! {
                biased;
                sent = self.send_in_order(range.clone(), &parts, &mut delivered) => sent,
                () = parts.closed() => Err(gone_away()),
            };
            let failure = self.close(&sent, &delivered, self.is_last(range.end)).await;
            if let Err(error) = failure {
                let _ = parts.send(Err(io::Error::other(error))).await;
            }
        });
        inbox
    }

    async fn send_in_order(
        &self,
        range: Range<u64>,
        parts: &mpsc::Sender<io::Result<Bytes>>,
        delivered: &mut DeliveredBytes,
    ) -> Result<(), ApiError> {
        let mut at = range.start;
        while at < range.end {
            let Some(bytes) = self.source.read(at, range.end, &self.body).await? else { return Ok(()) };
            at += bytes.len() as u64;
            self.report(delivered, bytes.len());
            let _ = parts.send(Ok(bytes)).await;
        }
        Ok(())
    }

    /// All bytes, each as soon as it is there; ends with an empty run at the object's end.
    pub fn out_of_order(self) -> mpsc::Receiver<PlacedBytes> {
        let (parts, inbox) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let mut delivered = DeliveredBytes::default();
            let sent = tokio::select! {
                biased;
                sent = self.send_out_of_order(&parts, &mut delivered) => sent,
                () = parts.closed() => Err(gone_away()),
            };
            if let Err(error) = self.close(&sent, &delivered, true).await {
                let _ = parts.send(Err(io::Error::other(error))).await;
            }
        });
        inbox
    }

    async fn send_out_of_order(
        &self,
        parts: &mpsc::Sender<PlacedBytes>,
        delivered: &mut DeliveredBytes,
    ) -> Result<(), ApiError> {
        let mut taken = Intervals::default();
        while let Some((at, bytes)) = self.source.read_any(&taken, &self.body).await? {
            taken.insert(at..at + bytes.len() as u64);
            self.report(delivered, bytes.len());
            let _ = parts.send(Ok((at, bytes))).await;
        }
        let _ = parts.send(Ok((taken.prefix(), Bytes::new()))).await;
        Ok(())
    }

    /// True if nothing comes after `end`.
    fn is_last(&self, end: u64) -> bool {
        self.size.is_none_or(|size| size == end)
    }

    /// Tells the end. What was read to its last byte is kept: the application may be gone by then.
    async fn close(
        &self,
        sent: &Result<(), ApiError>,
        delivered: &DeliveredBytes,
        to_the_end: bool,
    ) -> Result<(), ApiError> {
        let mut oid = self.oid;
        if let (Ok(()), true, ContentOrigin::Arriving(arrival)) = (sent, to_the_end, &self.source) {
            oid = arrival.ended().await.ok();
        }
        self.report_end(sent, delivered, oid);
        sent.clone()
    }

    fn report_end(&self, sent: &Result<(), ApiError>, delivered: &DeliveredBytes, oid: Option<Oid>) {
        let event = match sent {
            Ok(()) => {
                let oid = oid.map(|oid| oid.to_string()).unwrap_or_default();
                let (bytes, encrypted) = (delivered.bytes, self.encrypted);
                Event::Summary(Summary { oid, bytes, encrypted, ..Summary::default() })
            }
            Err(error) => Event::Failed(error.clone()),
        };
        self.transfer.report(&event);
    }

    /// Tells now and then how far it is.
    fn report(&self, delivered: &mut DeliveredBytes, bytes: usize) {
        delivered.bytes += bytes as u64;
        if delivered.last.is_some_and(|last| last.elapsed() < PROGRESS_EVERY) {
            return;
        }
        delivered.last = Some(Instant::now());
        let expected = self.size.unwrap_or(delivered.bytes);
        self.transfer.report(&Event::Transfer(Progress {
            done: delivered.bytes,
            expected,
            ..Progress::default()
        }));
    }
}

/// Bytes of a stream that were reported.
#[derive(Default)]
struct DeliveredBytes {
    bytes: u64,
    last: Option<Instant>,
}

fn gone_away() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the application closed the connection")
}

impl ContentOrigin {
    /// The bytes of `range`, if they are in memory.
    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        let Self::Stored { layout, first, .. } = self else { return None };
        let range = range.start..range.end.min(layout.size());
        let is_first = range.start <= range.end && range.end <= layout.range(0).end;
        let first = if is_first { lock(first).take() } else { None };
        first.map(|first| first.slice(range.start as usize..range.end as usize))
    }

    /// Bytes from `at` on, up to `end`; none after the object's end.
    async fn read(&self, at: u64, end: u64, body: &HeldBody) -> Result<Option<Bytes>, ApiError> {
        match self {
            Self::Stored { layout, .. } if at >= layout.size() => Ok(None),
            Self::Stored { service, oid, layout, first, .. } => {
                let (service, oid, layout) = (Arc::clone(service), *oid, *layout);
                let index = at / layout.piece_len();
                let piece = layout.range(index);
                // Also of who reads elsewhere: it takes up room.
                let first = lock(first).take().filter(|_| index == 0);
                if let Some(first) = first {
                    return Ok(Some(first.slice(at as usize..end.min(piece.end) as usize)));
                }
                let room = body.room(layout.len(index)).await.ok_or_else(gone_away)?;
                let budget = Arc::clone(&service.read_budget);
                let _permit = if room.bytes() < layout.len(index) { budget.cutting().await } else { None };
                let wanted = (at - piece.start) as usize..(end.min(piece.end) - piece.start) as usize;
                let read = move || {
                    let piece = checked_piece(&*service.store, &oid, &layout, index)?;
                    Ok(room.hold(piece, wanted))
                };
                blocking(read).await.map(Some)
            }
            Self::Arriving(arrival) => {
                take(arrival, arrival.spool.next_in_order(at, PART.min(end - at)).await, body).await
            }
        }
    }

    /// Some bytes that were not taken yet; none when all were.
    async fn read_any(&self, taken: &Intervals, body: &HeldBody) -> Result<Option<(u64, Bytes)>, ApiError> {
        match self {
            Self::Stored { .. } => {
                let at = taken.prefix();
                Ok(self.read(at, u64::MAX, body).await?.map(|bytes| (at, bytes)))
            }
            Self::Arriving(arrival) => {
                let next = arrival.spool.next_of_all(taken, PART).await;
                let at = if let Next::Run(run) = &next { run.start } else { 0 };
                Ok(take(arrival, next, body).await?.map(|bytes| (at, bytes)))
            }
        }
    }
}

/// Reads what is next. The end is one only if the whole object is right.
async fn take(arrival: &Arrival, next: Next, body: &HeldBody) -> Result<Option<Bytes>, ApiError> {
    match next {
        Next::Run(run) => {
            // Only now that the bytes are there: a slow producer holds no memory.
            let room = body.room(run.end - run.start).await.ok_or_else(gone_away)?;
            let (spool, run) = (Arc::clone(&arrival.spool), run.start..run.start + room.bytes());
            let read = move || {
                let read = spool.read_run(&run).map_err(|error| {
                    ApiError::new(ErrorKind::Failed, format!("reading what came: {error}"))
                })?;
                let all = 0..read.len();
                Ok(room.hold(read, all))
            };
            blocking(read).await.map(Some)
        }
        Next::End(_) => Ok(None),
        Next::Failed => Err(arrival.ended().await.err().unwrap_or_else(|| {
            ApiError::new(ErrorKind::Interrupted, "the transfer ended before all was here")
        })),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use towpath_config::{BytePlace, Config, Home};
    use towpath_content::node_id::hex;
    use towpath_store::About;

    use super::*;
    use crate::Options;

    const LIVE: Oid = Oid::Live([9; 32]);

    /// A service whose bytes lie in a directory of their own, with one object; and its request.
    fn kept_elsewhere(folder: &std::path::Path, content: &[u8]) -> (Arc<Service>, ContentRequest) {
        let mut config = Config::default();
        config.store.bytes = Some(BytePlace::Directory(folder.join("bytes")));
        let options = Options { config, ..Options::default() };
        let service = Service::open(Home::under(&folder.join("home")), options).unwrap();
        service.store.put_init(&LIVE, &About::default()).unwrap();
        service.store.put_data(&LIVE, content).unwrap();
        let oid = service.store.put_commit(&LIVE).unwrap();
        (service, ContentRequest { ticket: oid.to_string(), ..ContentRequest::default() })
    }

    async fn all(mut parts: mpsc::Receiver<io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(part) = parts.recv().await {
            all.extend_from_slice(&part?);
        }
        Ok(all)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_small_object_is_read_once_where_its_bytes_lie() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..8192_u32).map(|number| number as u8).collect();
        let (service, request) = kept_elsewhere(folder.path(), &content);
        let [whole, part, late] = [
            open(&service, &request).await.unwrap(),
            open(&service, &request).await.unwrap(),
            open(&service, &request).await.unwrap(),
        ];
        assert_eq!(service.read_budget.held(), 3 * 8192, "their memory counts");
        // What is asked for from now on is not there.
        let hash = hex(Oid::of(&content).digest());
        fs::remove_file(folder.path().join("bytes").join(&hash[..2]).join(&hash)).unwrap();
        assert_eq!(all(whole.in_order(0..8192)).await.unwrap(), content);
        assert_eq!(all(part.in_order(1000..1010)).await.unwrap(), content[1000..1010]);
        drop(late);
        assert_eq!(service.read_budget.held(), 0);
    }
}
