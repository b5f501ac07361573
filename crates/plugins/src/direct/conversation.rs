//! The answering half of one connection: takes a peer's requests within limits.
//!
//! One thread answers them in turn and sends batches of frames to the writer task through a short
//! queue, so a peer that does not read holds a few hundred kilobytes and one thread that sleeps.
//! Each followed object takes a further thread, which waits for the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use towpath_content::{NodeId, Oid};
use towpath_link::PathProbe;

use super::answers::{answer_describe, answer_watch};
use super::gets::serve_get;
use super::outgoing::Outbox;
use super::service::{Blocks, MAX_REQUESTS, Service, Talk, lock};
use super::wire::{self, Body, Get};

/// Wants in a `Get`.
const MAX_WANTS: usize = 1024;
/// Pieces or chunks in a `Get`.
const MAX_PIECES: u64 = 4096;
/// Roots proved on a connection.
const MAX_ROOTS: usize = 64;
/// Objects followed or watched on one connection: each takes a thread.
const MAX_FOLLOWED: usize = 8;

/// The answering half of one connection. Dropping it ends its threads.
pub struct Conversation {
    talk: Arc<Talk>,
    requests: mpsc::Sender<Request>,
    proofs: usize,
    _end: DropGuard,
}

/// What the connection's one reading thread answers, in turn.
enum Request {
    Get(Get),
    Describe(wire::Describe),
}

impl Conversation {
    /// Begins to answer one peer.
    pub fn start(
        service: Arc<Service>,
        node: NodeId,
        binding: [u8; 32],
        outbox: Outbox,
        probe: PathProbe,
    ) -> Self {
        let talk = Arc::new(Talk::new(service, node, binding, outbox, probe));
        let _end = talk.token.clone().drop_guard();
        let (requests, inbox) = mpsc::channel(MAX_REQUESTS);
        let server = Arc::clone(&talk);
        tokio::task::spawn_blocking(move || serve_requests(&server, inbox));
        Self { talk, requests, proofs: 0, _end }
    }

    /// The peer understands compressed data, and they are wanted.
    pub fn compress(&self) {
        self.talk.compress.store(true, Ordering::Relaxed);
    }

    /// Takes a request. An error is a reason to close the connection.
    pub async fn request(&mut self, body: Body) -> Result<(), String> {
        match body {
            Body::Prove(prove) => self.prove(&prove),
            Body::Get(get) => {
                check_get(&get)?;
                self.talk.begin(get.request)?;
                self.queue(Request::Get(get)).await
            }
            Body::Describe(question) if question.follow => self.follow(question, answer_describe),
            Body::Describe(question) => {
                self.talk.begin(question.request)?;
                self.queue(Request::Describe(question)).await
            }
            Body::Watch(question) => self.follow(question, answer_watch),
            Body::Cancel(cancel) => {
                self.talk.cancel(cancel.request);
                Ok(())
            }
            _ => Err("sent a message that does not belong here".into()),
        }
    }

    /// Never waits: the count of requests under way is checked first.
    async fn queue(&self, request: Request) -> Result<(), String> {
        self.requests.send(request).await.map_err(|_| "the service is shutting down".to_owned())
    }

    fn prove(&mut self, prove: &wire::Prove) -> Result<(), String> {
        self.proofs += 1;
        if self.proofs > MAX_ROOTS {
            return Err("proved too many roots".into());
        }
        let root = Oid::from_bytes(&prove.root).map_err(|error| error.to_string())?;
        let proof: [u8; 32] =
            prove.proof[..].try_into().map_err(|_| "sent a proof of the wrong length".to_owned())?;
        let secret = self.talk.service.issuer.secret(&root);
        if secret.is_some_and(|secret| secret.check(&proof, &self.talk.binding, &self.talk.node, &root)) {
            lock(&self.talk.roots).insert(root);
        }
        Ok(())
    }

    /// Answers on a thread of its own, which waits for the object to change.
    fn follow(&self, question: wire::Describe, answer: fn(&Talk, &wire::Describe)) -> Result<(), String> {
        self.talk.begin(question.request)?;
        if self.talk.followers.fetch_add(1, Ordering::Relaxed) >= MAX_FOLLOWED {
            return Err("follows too many objects".into());
        }
        let talk = Arc::clone(&self.talk);
        tokio::task::spawn_blocking(move || {
            answer(&talk, &question);
            talk.followers.fetch_sub(1, Ordering::Relaxed);
            talk.end(question.request);
        });
        Ok(())
    }
}

fn check_get(get: &Get) -> Result<(), String> {
    let pieces: u64 = get.wants.iter().map(|want| u64::from(want.count)).sum();
    if get.wants.len() > MAX_WANTS || pieces > MAX_PIECES {
        return Err(format!("asked for {} wants and {pieces} pieces at once", get.wants.len()));
    }
    Ok(())
}

/// The connection's reading thread.
fn serve_requests(talk: &Talk, mut inbox: mpsc::Receiver<Request>) {
    let mut blocks = Blocks::default();
    while let Some(request) = inbox.blocking_recv() {
        let number = match request {
            Request::Get(get) => {
                serve_get(talk, &mut blocks, &get);
                get.request
            }
            Request::Describe(question) => {
                answer_describe(talk, &question);
                question.request
            }
        };
        talk.end(number);
    }
}
