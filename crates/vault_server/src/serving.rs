//! One connection: orders of the protocol's machine are done, off the threads that wait for the network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use towpath_content::NodeId;
use towpath_link::{Connection, Frame, FrameReader, FrameWriter};
use towpath_vault_format::{Conflict, Digest, UpdateError, VaultId};
use towpath_vault_protocol::assembly::Assembly;
use towpath_vault_protocol::message::SeenVersion;
use towpath_vault_protocol::newer::difference;
use towpath_vault_protocol::whole::unpacked_proposal;
use towpath_vault_protocol::{
    ClientMessage, Proposal, ProposalVerdict, ServerMachine, ServerMessage, ServerOrder, VaultRefusal,
};

use crate::arriving::{ArrivedBlock, ArrivingBlocks};
use crate::error::VaultError;
use crate::folder::{OpenVault, VaultFolder};
use crate::vault::Vault;

/// Longest time in which a client that has said what it wants may send nothing.
const QUIET: Duration = Duration::from_secs(600);
/// Longest time in which a client that owes blocks or a signature may send nothing.
const OWING: Duration = Duration::from_secs(120);
/// So long a client that is refused may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);
/// Objects are read and sent so many bytes at a time.
const SENT_AT_ONCE: usize = 4 << 20;

/// A connection with a client.
pub(crate) struct VaultTalk {
    folder: Arc<VaultFolder>,
    peer: NodeId,
    vault: Option<Arc<OpenVault>>,
    machine: ServerMachine,
    arriving: ArrivingBlocks,
    writer: FrameWriter,
}

/// Reason why a connection is over.
type TalkEnd = &'static str;

impl VaultTalk {
    /// Answers a client until it goes.
    pub(crate) async fn run(folder: Arc<VaultFolder>, connection: Connection) -> TalkEnd {
        let peer = connection.peer;
        let (mut reader, writer) = connection.split();
        let (machine, arriving) = (ServerMachine::default(), ArrivingBlocks::default());
        let mut serving = Self { folder, peer, vault: None, machine, arriving, writer };
        let why = serving.serve(&mut reader).await;
        // What came of a version is not sent again by who comes back soon.
        let _ = serving.settle().await;
        if serving.machine.is_over() { serving.farewell(reader).await } else { why }
    }

    /// Answers until the connection is over.
    async fn serve(&mut self, reader: &mut FrameReader) -> TalkEnd {
        // Memory is taken for short messages alone before it is known that the client has a right to more.
        reader.hold_short(true);
        let mut assembly = Assembly::default();
        loop {
            let message = match self.receive(reader, &mut assembly).await {
                Ok(message) => message,
                Err(why) => return why,
            };
            let messages = match self.unpacked(message).await {
                Ok(messages) => messages,
                Err(why) => return why,
            };
            for message in messages {
                let order = self.machine.on(message);
                if self.obey(order).await.is_err() || self.writer.flush().await.is_err() {
                    return "it takes nothing";
                }
                if self.machine.is_over() {
                    return "it is refused";
                }
            }
            reader.hold_short(self.vault.is_none());
        }
    }

    /// The messages that say what a message says. Without a vault what is packed can't be understood, which the machine tells.
    async fn unpacked(&mut self, message: ClientMessage) -> Result<Vec<ClientMessage>, TalkEnd> {
        let (ClientMessage::Whole { signature, packed }, Some(open)) = (&message, &self.vault) else {
            return Ok(vec![message]);
        };
        let (signature, packed, id) = (*signature, packed.clone(), open.id());
        let unpacked = self.with_vault(move |open, peer| {
            let root = |number| open.read(|vault| Ok(vault.root_hash(number))).ok().flatten();
            Ok(unpacked_proposal((signature, &packed), id, peer, &root))
        });
        let unpacked = unpacked.await.map_err(|_| "its vault can't be read")?;
        unpacked.map_err(|error| {
            tracing::debug!(%error, "a packed proposal can't be understood");
            "it can't be understood"
        })
    }

    /// Lets the client read why: a connection that is closed with bytes unread is reset, and what was sent is lost.
    async fn farewell(self, mut reader: FrameReader) -> TalkEnd {
        let leaving = async {
            let _ = self.writer.finish().await;
            while let Ok(Some(_)) = reader.next().await {}
        };
        let _ = timeout(FAREWELL, leaving).await;
        "it is refused"
    }

    async fn receive(
        &mut self,
        reader: &mut FrameReader,
        assembly: &mut Assembly,
    ) -> Result<ClientMessage, TalkEnd> {
        let limit = if self.machine.is_idle() { QUIET } else { OWING };
        loop {
            let whole = assembly.take(frame(reader, limit).await?).map_err(|_| "it sends too much")?;
            let Some((kind, body)) = whole else { continue };
            let message = ClientMessage::from_body(kind, &body).map_err(|error| {
                tracing::debug!(%error, "a message can't be understood");
                "it can't be understood"
            })?;
            if let Some(message) = message {
                return Ok(message);
            }
        }
    }

    /// Does what is ordered; an order may lead to another.
    async fn obey(&mut self, order: ServerOrder) -> Result<(), ()> {
        let mut order = order;
        loop {
            order = match order {
                ServerOrder::Wait => return Ok(()),
                ServerOrder::Answer(message) => return self.say(message).await,
                ServerOrder::Open(vault, seen) => return self.open(vault, seen).await,
                ServerOrder::Judge(proposal) => self.judge(proposal).await?,
                ServerOrder::Keep(hash, block) => self.keep(hash, block).await?,
                ServerOrder::KeepEarly(hash, block) => {
                    self.keep_early(hash, block).await;
                    return Ok(());
                }
                ServerOrder::Commit(proposal) => return self.commit(proposal).await,
                ServerOrder::Send(hashes) => return self.send_objects(hashes).await,
                question => return self.answer(question).await,
            }
        }
    }

    async fn open(&mut self, vault: VaultId, seen: Option<SeenVersion>) -> Result<(), ()> {
        let (folder, peer) = (Arc::clone(&self.folder), self.peer);
        let opened = blocking(move || {
            let open = folder.vault(vault)?;
            let head = open.read(|vault| {
                vault.check_reader(&peer)?;
                Ok(told_head(vault, seen))
            })?;
            Ok((open, head))
        });
        match opened.await {
            Ok((open, head)) => {
                self.vault = Some(open);
                self.machine.opened();
                self.say(head).await
            }
            Err(error) => self.refuse(&error).await,
        }
    }

    async fn judge(&mut self, proposal: Box<Proposal>) -> Result<ServerOrder, ()> {
        // What came before it is not asked for again.
        if let Err(error) = self.settle().await {
            told(&error);
        }
        let verdict = match self.check_proposer(&proposal) {
            Err(error) => {
                let (refusal, why) = error.told();
                ProposalVerdict::Refused(refusal, why)
            }
            Ok(()) => {
                let judged = proposal.clone();
                let verdict = self.in_turn(move |open, peer| {
                    open.read(|vault| vault.check_reader(&peer).map(|()| vault.judge(&judged)))
                });
                verdict.await.unwrap_or_else(|error| {
                    let (refusal, why) = error.told();
                    ProposalVerdict::Refused(refusal, why)
                })
            }
        };
        let (messages, order) = self.machine.judged(proposal, verdict);
        for message in messages {
            self.say(message).await?;
        }
        self.writer.flush().await.map_err(drop)?;
        Ok(order)
    }

    /// Fails if nobody may offer a version here, or this client none that makes a vault.
    fn check_proposer(&self, proposal: &Proposal) -> Result<(), VaultError> {
        self.folder.check_changes()?;
        match proposal.update.base.is_none() && !self.folder.may_make(&self.peer) {
            true => Err(VaultError::NotAllowed("this node may make no vaults on this server")),
            false => Ok(()),
        }
    }

    async fn keep(&mut self, hash: Digest, block: Bytes) -> Result<ServerOrder, ()> {
        let kept = match &self.vault {
            Some(vault) => self.arriving.add(vault, ArrivedBlock { hash, block, early: None }).await,
            None => Err(VaultError::NotAllowed("no vault was named")),
        };
        match kept {
            Ok(()) => Ok(self.machine.kept()),
            Err(error) => {
                let (refusal, why) = told(&error);
                let message = self.machine.not_kept(refusal, why);
                Ok(ServerOrder::Answer(message))
            }
        }
    }

    /// Keeps a block that came before its version. Nothing is said of one that is not kept: the version asks for it.
    async fn keep_early(&mut self, hash: Digest, block: Bytes) {
        let Some(vault) = self.vault.as_ref().filter(|_| self.folder.check_changes().is_ok()) else { return };
        if let Err(error) =
            self.arriving.add(vault, ArrivedBlock { hash, block, early: Some(self.peer) }).await
        {
            told(&error);
        }
    }

    /// Returns when all blocks that came are kept.
    async fn settle(&mut self) -> Result<(), VaultError> {
        match &self.vault {
            Some(vault) => self.arriving.settle(vault).await,
            None => Ok(()),
        }
    }

    async fn commit(&mut self, proposal: Box<Proposal>) -> Result<(), ()> {
        if let Err(error) = self.settle().await {
            return self.refuse(&error).await;
        }
        let folder = Arc::clone(&self.folder);
        let committed = self.in_turn(move |open, _| {
            let conflict = match open.commit(&proposal, folder.identity(), folder.now()) {
                Ok(certificate) => return Ok(ServerMessage::Committed(certificate)),
                // The head may have moved since the proposal was looked at.
                Err(VaultError::Update(UpdateError::Conflict(conflict))) => conflict,
                // Blocks that were here then may be collected since: they are sent when it is offered again.
                Err(VaultError::Block(_)) => Conflict::Moved,
                Err(error) => return Err(error),
            };
            open.read(|vault| Ok(ServerMessage::Conflict(conflict, vault.head().cloned().map(Box::new))))
        });
        match committed.await {
            Ok(message) => self.say(message).await,
            Err(error) => self.refuse(&error).await,
        }
    }

    async fn answer(&mut self, question: ServerOrder) -> Result<(), ()> {
        let folder = Arc::clone(&self.folder);
        let answered = self.with_vault(move |open, peer| match question {
            ServerOrder::Drop(statement) => {
                folder.check_changes()?;
                let number = statement.number;
                open.change(|vault| vault.drop_versions(*statement)).map(|()| ServerMessage::Dropped(number))
            }
            ServerOrder::Usage(dropped) => {
                open.read(|vault| vault.check_reader(&peer))?;
                open.usage(&dropped).map(ServerMessage::Usage)
            }
            question => open.read(|vault| vault.check_reader(&peer).and_then(|()| told_of(vault, &question))),
        });
        match answered.await {
            Ok(message @ ServerMessage::Dropped(_)) => self.dropped(message).await,
            Ok(message) => self.say(message).await,
            Err(error) => self.refuse(&error).await,
        }
    }

    async fn dropped(&mut self, message: ServerMessage) -> Result<(), ()> {
        self.say(message).await?;
        self.writer.flush().await.map_err(drop)?;
        self.collect().await;
        Ok(())
    }

    /// The statement counts already: that its space can't be given back now is no fault of the client's.
    async fn collect(&mut self) {
        match self.with_vault(|open, _| open.collect()).await {
            Ok(collected) => tracing::info!(?collected, "versions were dropped"),
            Err(error) => tracing::error!(error = ?error, "garbage is not collected"),
        }
    }

    /// Sends objects in order, some megabytes at a time.
    async fn send_objects(&mut self, mut left: Vec<Digest>) -> Result<(), ()> {
        while !left.is_empty() {
            let asked = left;
            let read = self.with_vault(move |open, peer| {
                let found = read_some(open, &peer, &asked)?;
                let rest = asked[found.len()..].to_vec();
                Ok((found, rest))
            });
            let (found, rest) = match read.await {
                Ok(read) => read,
                // Each object that was asked for has an answer of its own: with this one the connection ends.
                Err(error) => {
                    self.refuse(&error).await?;
                    let _ = self.writer.flush().await;
                    return Err(());
                }
            };
            left = rest;
            for message in found {
                self.say(message).await?;
            }
        }
        Ok(())
    }

    async fn refuse(&mut self, error: &VaultError) -> Result<(), ()> {
        let (refusal, why) = told(error);
        self.say(ServerMessage::Refused(refusal, why)).await
    }

    async fn say(&mut self, message: ServerMessage) -> Result<(), ()> {
        for (kind, body) in message.to_frames() {
            self.writer.send_bytes(kind, &[], body).await.map_err(drop)?;
        }
        Ok(())
    }

    /// [`OpenVault::in_turn`].
    async fn in_turn<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&OpenVault, NodeId) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, VaultError> {
        let vault = self.vault.as_ref().ok_or(VaultError::NotAllowed("no vault was named"))?;
        let peer = self.peer;
        vault.in_turn(move |vault| work(vault, peer)).await.wait().await
    }

    async fn with_vault<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&OpenVault, NodeId) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, VaultError> {
        let (vault, peer) = (self.vault.clone(), self.peer);
        let vault = vault.ok_or(VaultError::NotAllowed("no vault was named"))?;
        blocking(move || work(&vault, peer)).await
    }
}

/// The next frame, if any of it comes within `limit`, and so on.
async fn frame(reader: &mut FrameReader, limit: Duration) -> Result<Frame, TalkEnd> {
    loop {
        let before = reader.received();
        match timeout(limit, reader.next()).await {
            Ok(Ok(frame)) => return frame.ok_or("it left"),
            Ok(Err(_)) => return Err("the connection broke"),
            Err(_) if reader.received() > before => {}
            Err(_) => return Err("it says nothing"),
        }
    }
}

/// The newest version, for who has seen one.
fn told_head(vault: &Vault, seen: Option<SeenVersion>) -> ServerMessage {
    let Some(newest) = vault.head() else { return ServerMessage::Head(None) };
    let seen = seen.and_then(|seen| {
        let version = vault.root(seen.number).ok()?;
        (SeenVersion::of(&version) == seen).then_some(version)
    });
    let newer = seen.and_then(|seen| difference(&seen, newest));
    newer.map_or_else(|| ServerMessage::Head(Some(Box::new(newest.clone()))), ServerMessage::Newer)
}

/// The answer to a question that changes nothing.
fn told_of(vault: &Vault, question: &ServerOrder) -> Result<ServerMessage, VaultError> {
    match question {
        ServerOrder::Versions(before, most) => Ok(ServerMessage::Versions(vault.versions(*before, *most))),
        ServerOrder::Root(number) => {
            vault.root(*number).map(|version| ServerMessage::Root(Box::new(version)))
        }
        ServerOrder::GetUpdate(number) => vault.packed_update(*number).map(ServerMessage::Update),
        ServerOrder::Statements(first) => Ok(ServerMessage::Statements(vault.statements(*first))),
        _ => Err(VaultError::NotAllowed("this is no question")),
    }
}

/// Answers to the first of these questions for objects, some megabytes of them.
fn read_some(open: &OpenVault, peer: &NodeId, asked: &[Digest]) -> Result<Vec<ServerMessage>, VaultError> {
    let (mut found, mut len) = (Vec::with_capacity(asked.len()), 0);
    while len < SENT_AT_ONCE && found.len() < asked.len() {
        for object in open.some_objects(peer, &asked[found.len()..])? {
            len += object.as_ref().map_or(0, Bytes::len);
            found.push(object.map_or(ServerMessage::Missing(asked[found.len()]), ServerMessage::Object));
        }
    }
    Ok(found)
}

/// What a client is told; what is the server's own trouble is logged.
fn told(error: &VaultError) -> (VaultRefusal, String) {
    let (refusal, why) = error.told();
    if refusal == VaultRefusal::Failed {
        tracing::error!(error = ?error, "a vault fails");
    }
    (refusal, why)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, VaultError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(VaultError::Log(std::io::Error::other(error))))
}
