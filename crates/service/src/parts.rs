//! Puts whose bytes come in parts: their tickets are out, their ends are not here yet.
//!
//! A part says where it begins, so that one that is sent again (its answer was lost) adds only what
//! is new, and a gap is noticed. Parts of one put come one after the other. The put itself lives in
//! the store; here is what it needs until it is committed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use towpath_store::Leases;

use tokio::io::AsyncReadExt;
use tokio::sync::OwnedMutexGuard;
use towpath_api::{ApiError, ErrorKind, Event, Input, OpenPutRequest, PartReply, PutKind, PutReply, Summary};
use towpath_content::Oid;
use towpath_content::ticket::{BoundSecret, Secret};
use towpath_store::{About, Holder, Lease, ObjectKind, Store};

use crate::metrics::Direction;
use crate::open_puts::{Filled, OpenEntry, OpenPut};
use crate::state::Service;
use crate::ticket_ends::terms;
use crate::tree_put::TreePut;
use towpath_peer_server::fresh::{now, random};
use towpath_words as words;

/// Bytes taken at once.
const READ: u64 = 256 << 10;
/// Longest time that a part waits for the one before it, which may hang on a connection that is gone.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// Begins a put; its ticket is honoured from now on.
pub(crate) fn open(service: &Arc<Service>, request: &OpenPutRequest) -> Result<(Oid, PutReply), ApiError> {
    service.open_puts.idle().iter().for_each(|live| give_up(service, live));
    let name = request.name.clone().unwrap_or_default().into_bytes();
    if !name.is_empty() && towpath_files::names::check_name(&name).is_err() {
        let message = "the name is not one that a file can have: it is one path component";
        return Err(ApiError::new(ErrorKind::Usage, message));
    }
    let terms = terms(&request.terms())?;
    let admitted = service.admission.begin(Direction::Put, service.home.data())?;
    let (live, secret) = (Oid::Live(random()?), BoundSecret { secret: Secret(random()?), terms });
    let (kind, tree) = match request.kind {
        PutKind::Blob => (ObjectKind::Blob, None),
        PutKind::Tree => (ObjectKind::Tree, Some(TreePut::default())),
    };
    let put = OpenPut {
        secret,
        holder: service.sessions.holder(request.session.as_deref())?,
        about: About { kind, name, ..About::default() },
        filled: Arc::new(tokio::sync::Mutex::new(Filled { size: 0, tree })),
        touched: Arc::new(Mutex::new(Instant::now())),
        transfer: Arc::new(service.transfers.begin_put(live.to_string())),
    };
    let about = put.about.clone();
    service.open_puts.add(live, OpenEntry { put, admitted });
    if let Err(error) = service.store.put_init(&live, &about) {
        service.open_puts.remove(&live);
        return Err(words::store(&error));
    }
    service.grants.share(live, secret);
    Ok((live, PutReply { ticket: service.ticket(live, secret), oid: live.to_string(), size: None }))
}

/// Place of a part, and what the application says of its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// Bytes of the put before it.
    pub offset: u64,
    /// True if a chunk ends with it.
    pub boundary: bool,
}

/// Appends what of a part is new.
pub async fn append(
    service: &Arc<Service>,
    live: &Oid,
    position: Part,
    mut part: Input<'_>,
) -> Result<PartReply, ApiError> {
    let put = service.open_puts.find(live).ok_or_else(|| no_such_put(live))?;
    let mut filled = own(&put).await?;
    let (offset, mut end) = (position.offset, position.offset);
    let Some(mut repeated) = filled.size.checked_sub(offset) else {
        let message = format!("a gap: the put has {} bytes, and the part begins at {offset}", filled.size);
        return Err(ApiError::new(ErrorKind::Usage, message).hint("send what is between them first"));
    };
    loop {
        // All that has come is handed on at once: a slow producer is followed, not waited for.
        let mut bytes = Vec::with_capacity(READ as usize);
        let read = (&mut part).take(READ).read_buf(&mut bytes).await;
        let read = read.map_err(|error| {
            ApiError::new(ErrorKind::Interrupted, format!("the part did not come to its end: {error}"))
        })?;
        if read == 0 {
            // The end of a part that is repeated was reported before.
            if position.boundary && end == filled.size {
                service.store.put_boundary(live).map_err(|error| words::store(&error))?;
            }
            return Ok(PartReply { size: filled.size });
        }
        end += read as u64;
        let skipped = repeated.min(read as u64);
        repeated -= skipped;
        bytes.drain(..skipped as usize);
        if !bytes.is_empty() {
            filled = store(service, live, filled, bytes).await?;
            put.report(filled.size);
        }
        put.touch();
    }
}

/// Bytes that a put has; waits for a part that is coming.
pub async fn size(service: &Service, live: &Oid) -> Result<u64, ApiError> {
    let put = service.open_puts.find(live).ok_or_else(|| no_such_put(live))?;
    Ok(own(&put).await?.size)
}

/// Waits until no other part is coming.
async fn own(put: &OpenPut) -> Result<OwnedMutexGuard<Filled>, ApiError> {
    let waited = tokio::time::timeout(WAIT_LIMIT, Arc::clone(&put.filled).lock_owned()).await;
    waited.map_err(|_| {
        ApiError::new(ErrorKind::Busy, "another part of this put is still coming")
            .hint("send the parts one after the other")
    })
}

/// Hands bytes to the store. The count goes along, so that it is right whatever becomes of whoever
/// waits here.
async fn store(
    service: &Arc<Service>,
    live: &Oid,
    mut filled: OwnedMutexGuard<Filled>,
    bytes: Vec<u8>,
) -> Result<OwnedMutexGuard<Filled>, ApiError> {
    let (service, live) = (Arc::clone(service), *live);
    let storing = tokio::task::spawn_blocking(move || {
        service.store.put_data(&live, &bytes).map_err(|error| words::store(&error))?;
        filled.size += bytes.len() as u64;
        if let Some(tree) = &mut filled.tree {
            tree.read(&bytes);
        }
        Ok(filled)
    });
    storing.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// Ends a put; said again, it answers the same.
pub(crate) async fn commit(service: &Arc<Service>, live: &Oid) -> Result<PutReply, ApiError> {
    let Some(put) = service.open_puts.find(live) else {
        return committed(service, live);
    };
    let filled = own(&put).await?;
    // It waited for another commit.
    if service.open_puts.find(live).is_none() {
        return committed(service, live);
    }
    let size = match filled.tree.as_ref().map(TreePut::finish).transpose() {
        Ok(of_files) => of_files.unwrap_or(filled.size),
        Err(refused) => {
            // No part that could still come makes it one.
            give_up(service, live);
            return Err(refused);
        }
    };
    let (working, live, open) = (Arc::clone(service), *live, put.clone());
    let storing = tokio::task::spawn_blocking(move || {
        let _filled = filled;
        finish(&working, &live, &open, size)
    });
    let reply = storing.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
    let bytes = reply.size.unwrap_or(0);
    put.transfer.report(&Event::Summary(Summary { oid: reply.oid.clone(), bytes, ..Summary::here() }));
    Ok(reply)
}

fn finish(service: &Service, live: &Oid, put: &OpenPut, size: u64) -> Result<PutReply, ApiError> {
    let mut lease = Lease {
        oid: *live,
        content: None,
        size: Some(size),
        secret: put.secret,
        path: None,
        about: put.about.clone(),
        created: now(),
        holder: put.holder,
    };
    // Before the commit, which tells it the content in one step: what is committed and not leased
    // may be evicted at any time.
    service.lease(&lease)?;
    let content = match service.store.put_commit(live) {
        Ok(content) => content,
        Err(error) => {
            service.store.done(live).map_err(|error| words::store(&error))?;
            return Err(words::store(&error));
        }
    };
    lease.content = Some(content);
    if let Some(entry) = service.open_puts.remove(live) {
        entry.admitted.done();
    }
    service.leave_to_lease(live);
    Ok(reply(service, &lease, content))
}

fn committed(service: &Service, live: &Oid) -> Result<PutReply, ApiError> {
    let leases = service.store.leases().map_err(|error| words::store(&error))?;
    let lease = leases.into_iter().find(|lease| lease.oid == *live && lease.path.is_none());
    let found = lease.and_then(|lease| lease.content.map(|content| reply(service, &lease, content)));
    found.ok_or_else(|| no_such_put(live))
}

fn reply(service: &Service, lease: &Lease, content: Oid) -> PutReply {
    PutReply { ticket: service.ticket(lease.oid, lease.secret), oid: content.to_string(), size: lease.size }
}

/// Gives a put up.
pub(crate) fn abort(service: &Service, live: &Oid) -> Result<(), ApiError> {
    match service.open_puts.find(live) {
        Some(_) => {
            give_up(service, live);
            Ok(())
        }
        None => Err(no_such_put(live)),
    }
}

/// Gives up what a session left open.
pub(crate) fn end_session(service: &Service, session: &[u8; 16]) {
    let left = service.open_puts.held(&Holder::Session(*session));
    left.iter().for_each(|live| give_up(service, live));
}

/// Gives up all that are open, since the service ends; whether there were any.
pub(crate) fn end_all(service: &Service) -> bool {
    let left = service.open_puts.all();
    left.iter().for_each(|live| give_up(service, live));
    !left.is_empty()
}

fn give_up(service: &Service, live: &Oid) {
    let Some(OpenEntry { put, .. }) = service.open_puts.remove(live) else { return };
    service.store.put_abort(live);
    service.grants.unshare(live);
    put.transfer.report(&Event::Failed(ApiError::new(ErrorKind::Interrupted, "the put was given up")));
}

fn no_such_put(live: &Oid) -> ApiError {
    let message = format!("no put in parts is open as {live}");
    ApiError::new(ErrorKind::NotFound, message)
        .hint("it was committed, given up, or the daemon was restarted")
}

/// Gives a put up when its application goes away before the end.
pub(crate) struct GiveUpOnDrop {
    service: Arc<Service>,
    live: Option<Oid>,
}

impl GiveUpOnDrop {
    /// Watches over the put `live`.
    pub(crate) fn new(service: &Arc<Service>, live: Oid) -> Self {
        Self { service: Arc::clone(service), live: Some(live) }
    }

    /// It came to its end.
    pub(crate) fn release(mut self) {
        self.live = None;
    }
}

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        if let Some(live) = self.live {
            give_up(&self.service, &live);
        }
    }
}
