//! A vault's server that lies: it has the real one's key and stands before it, as one of its clients.
//!
//! ```text
//!   tow vault ... ──► liar, with the server's key ──► tow vault serve
//!                        what is asked and told goes through a `Liar`
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use towpath_content::NodeId;
use towpath_link::tcp::{DialConfig, Listener, Timeouts, dial};
use towpath_link::{Connection, FrameReader, FrameWriter, Identity};
use towpath_vault_protocol::assembly::Assembly;
use towpath_vault_protocol::{ClientMessage, PROTOCOL, ServerMessage};

use crate::environment::LOOPBACK;

/// A message as it goes over the wire: its kind and its body.
pub type RawMessage = (u8, Bytes);

/// What becomes of a client's message.
pub enum Fate {
    /// The server gets this.
    Pass(RawMessage),
    /// The server hears nothing of it, and the client is told this.
    Answer(Vec<ServerMessage>),
    /// Both connections end.
    HangUp,
}

/// How somebody lies.
pub trait Liar: Send {
    /// What becomes of a client's message. The truth is [`raw`] of it.
    fn asked(&mut self, message: ClientMessage) -> Fate {
        Fate::Pass(raw(message.to_frames()))
    }

    /// True if the newest version may be told as what it differs in.
    fn is_brief(&self) -> bool {
        false
    }

    /// What a client is told instead of what the server says; `None`: both connections end.
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        Some(raw(message.to_frames()))
    }
}

/// One that says the truth.
pub struct Honest;

impl Liar for Honest {}

/// Kind and body of a message.
pub fn raw(frames: Vec<(u8, Bytes)>) -> RawMessage {
    let kind = frames.last().map_or(0, |(kind, _)| *kind);
    let bodies: Vec<_> = frames.into_iter().map(|(_, body)| body).collect();
    (kind, bodies.concat().into())
}

/// A message without its last byte.
pub fn cut((kind, body): RawMessage) -> RawMessage {
    (kind, body.slice(..body.len() - 1))
}

/// So long a client may take to read what it was told last.
const FAREWELL: Duration = Duration::from_secs(2);

/// A listener that lies until it is dropped.
pub struct LyingServer {
    /// Where it is, as `tow vault serve` would print it.
    pub place: String,
    liar: Arc<Mutex<Box<dyn Liar>>>,
    _runtime: Runtime,
}

/// The ways of the liar.
#[derive(Clone)]
struct Between {
    liar: Arc<Mutex<Box<dyn Liar>>>,
    member: Identity,
    server: (NodeId, SocketAddr),
}

impl LyingServer {
    /// Stands before the server at `place`, with its `identity`; to it, it is the `member`.
    pub fn new(identity: &Identity, place: &str, member: Identity) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let node = identity.node_id();
        let address = place.split_once('@').unwrap().1.parse().unwrap();
        let here = LOOPBACK.parse().unwrap();
        let listener = runtime.block_on(Listener::bind_for(here, identity, &[PROTOCOL])).unwrap();
        let place = format!("{node}@{}", listener.address().unwrap());
        let liar: Arc<Mutex<Box<dyn Liar>>> = Arc::new(Mutex::new(Box::new(Honest)));
        let between = Between { liar: Arc::clone(&liar), member, server: (node, address) };
        runtime.spawn(accept(listener, between));
        Self { place, liar, _runtime: runtime }
    }

    /// Lies so from now on.
    pub fn lie(&self, liar: impl Liar + 'static) {
        *locked(&self.liar) = Box::new(liar);
    }
}

fn locked(liar: &Mutex<Box<dyn Liar>>) -> MutexGuard<'_, Box<dyn Liar>> {
    liar.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: Listener, between: Between) {
    while let Ok(pending) = listener.accept().await {
        let between = between.clone();
        tokio::spawn(async move {
            let Ok(client) = pending.handshake(Timeouts::default().handshake).await else { return };
            let how = DialConfig { protocol: PROTOCOL, ..DialConfig::default() };
            let (node, address) = between.server;
            let Ok(server) = dial(address, &between.member, node, &how).await else { return };
            pass(client, server, &between.liar).await;
        });
    }
}

/// Passes messages in both directions until either side is gone.
async fn pass(client: Connection, server: Connection, liar: &Mutex<Box<dyn Liar>>) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut asked, mut told) = (Assembly::default(), Assembly::default());
    loop {
        let is_alive = tokio::select! {
            message = next(&mut from_client, &mut asked) => match message {
                Some(message) => match on_asked(liar, message, &mut to_client, &mut to_server).await {
                    Some(is_alive) => is_alive,
                    None => return,
                },
                None => false,
            },
            message = next(&mut from_server, &mut told) => match message {
                Some((kind, body)) => {
                    let message = ServerMessage::from_body(kind, &body).unwrap().unwrap();
                    let told = locked(liar).told(message);
                    match told {
                        Some(message) => send(&mut to_client, message).await,
                        None => false,
                    }
                }
                None => false,
            },
        };
        if !is_alive {
            break;
        }
    }
    // With bytes left unread the connection would be reset, and what was told last be lost.
    let leaving = async {
        let _ = to_client.finish().await;
        while let Ok(Some(_)) = from_client.next().await {}
    };
    let _ = tokio::time::timeout(FAREWELL, leaving).await;
}

/// The next message. What a cancelled call has read of it is in `assembly`.
async fn next(reader: &mut FrameReader, assembly: &mut Assembly) -> Option<RawMessage> {
    loop {
        let frame = reader.next().await.ok()??;
        if let Some(message) = assembly.take(frame).ok()? {
            return Some(message);
        }
    }
}

/// True if it goes on; `None`: the liar hangs up.
async fn on_asked(
    liar: &Mutex<Box<dyn Liar>>,
    (kind, body): RawMessage,
    to_client: &mut FrameWriter,
    to_server: &mut FrameWriter,
) -> Option<bool> {
    let message = match ClientMessage::from_body(kind, &body).unwrap().unwrap() {
        // The newest version is told whole, so that it can be lied about, unless the liar wants it short.
        ClientMessage::Hello(vault, seen) => {
            ClientMessage::Hello(vault, seen.filter(|_| locked(liar).is_brief()))
        }
        message => message,
    };
    let fate = locked(liar).asked(message);
    match fate {
        Fate::Pass(message) => Some(send(to_server, message).await),
        Fate::HangUp => None,
        Fate::Answer(messages) => {
            for message in messages {
                if !send(to_client, raw(message.to_frames())).await {
                    return Some(false);
                }
            }
            Some(true)
        }
    }
}

/// Sends a message; false if nobody takes it.
async fn send(writer: &mut FrameWriter, (kind, body): RawMessage) -> bool {
    for (kind, body) in towpath_vault_protocol::assembly::frames(kind, body) {
        if writer.send_bytes(kind, &[], body).await.is_err() {
            return false;
        }
    }
    writer.flush().await.is_ok()
}
