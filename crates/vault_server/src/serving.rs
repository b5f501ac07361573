//! One connection: orders of the protocol's machine are done, off the threads that wait for the network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use towpath_content::NodeId;
use towpath_link::{Connection, FrameReader, FrameWriter};
use towpath_vault_format::{Digest, UpdateError, VaultId};
use towpath_vault_protocol::assembly::Assembly;
use towpath_vault_protocol::{
    ClientMessage, Proposal, ProposalVerdict, ServerMachine, ServerMessage, ServerOrder, VaultRefusal,
};

use crate::error::VaultError;
use crate::server::{OpenVault, VaultServer};

/// Longest time in which a client that has said what it wants may send nothing.
const QUIET: Duration = Duration::from_secs(600);
/// Longest time in which a client that owes blocks or a signature may send nothing.
const OWING: Duration = Duration::from_secs(120);
/// Objects are read and sent so many bytes at a time.
const SENT_AT_ONCE: usize = 4 << 20;

/// A connection with a client.
pub(crate) struct Serving {
    server: Arc<VaultServer>,
    peer: NodeId,
    vault: Option<Arc<OpenVault>>,
    machine: ServerMachine,
    writer: FrameWriter,
}

/// Reason why a connection is over.
type Ending = &'static str;

impl Serving {
    /// Answers a client until it goes.
    pub(crate) async fn run(server: Arc<VaultServer>, connection: Connection) -> Ending {
        let peer = connection.peer;
        let (mut reader, writer) = connection.split();
        let machine = ServerMachine::default();
        let mut serving = Self { server, peer, vault: None, machine, writer };
        // Memory is taken for short messages alone before it is known that the client has a right to more.
        reader.hold_short(true);
        let mut assembly = Assembly::default();
        loop {
            let message = match serving.receive(&mut reader, &mut assembly).await {
                Ok(message) => message,
                Err(why) => return why,
            };
            let order = serving.machine.on(message);
            if serving.obey(order).await.is_err() || serving.writer.flush().await.is_err() {
                return "it takes nothing";
            }
            if serving.machine.is_over() {
                return "it is refused";
            }
            reader.hold_short(serving.vault.is_none());
        }
    }

    async fn receive(
        &mut self,
        reader: &mut FrameReader,
        assembly: &mut Assembly,
    ) -> Result<ClientMessage, Ending> {
        loop {
            let before = reader.received();
            let limit = if self.machine.is_idle() { QUIET } else { OWING };
            let frame = match timeout(limit, reader.next()).await {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) => return Err("it left"),
                Ok(Err(_)) => return Err("the connection broke"),
                Err(_) if reader.received() > before => continue,
                Err(_) => return Err("it says nothing"),
            };
            let whole = assembly.take(frame).map_err(|_| "it sends too much")?;
            let Some((kind, body)) = whole else { continue };
            match ClientMessage::from_body(kind, &body) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a message can't be understood");
                    return Err("it can't be understood");
                }
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
                ServerOrder::Open(vault) => return self.open(vault).await,
                ServerOrder::Judge(proposal) => self.judge(proposal).await?,
                ServerOrder::Keep(hash, block) => self.keep(hash, block).await?,
                ServerOrder::Commit(proposal) => return self.commit(proposal).await,
                ServerOrder::Send(hashes) => return self.send_objects(hashes).await,
                question => return self.answer(question).await,
            }
        }
    }

    async fn open(&mut self, vault: VaultId) -> Result<(), ()> {
        let (server, peer) = (Arc::clone(&self.server), self.peer);
        let opened = blocking(move || {
            let open = server.vault(vault)?;
            let head = open.read(|vault| {
                vault.check_reader(&peer)?;
                Ok(vault.head().cloned())
            })?;
            Ok((open, head))
        });
        match opened.await {
            Ok((open, head)) => {
                self.vault = Some(open);
                self.machine.opened();
                self.say(ServerMessage::Head(head.map(Box::new))).await
            }
            Err(error) => self.refuse(&error).await,
        }
    }

    async fn judge(&mut self, proposal: Box<Proposal>) -> Result<ServerOrder, ()> {
        let is_new = proposal.update.base.is_none();
        let verdict = match is_new && !self.server.may_make(&self.peer) {
            true => {
                let why = "this node may make no vaults on this server".to_owned();
                ProposalVerdict::Refused(VaultRefusal::NotAllowed, why)
            }
            false => {
                let judged = proposal.clone();
                let verdict = self.with_vault(move |open, peer| {
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

    async fn keep(&mut self, hash: Digest, block: Bytes) -> Result<ServerOrder, ()> {
        match self.with_vault(move |open, _| open.change(|vault| vault.keep(hash, block))).await {
            Ok(()) => Ok(self.machine.kept()),
            Err(error) => {
                let (refusal, why) = told(&error);
                let message = self.machine.not_kept(refusal, why);
                Ok(ServerOrder::Answer(message))
            }
        }
    }

    async fn commit(&mut self, proposal: Box<Proposal>) -> Result<(), ()> {
        let server = Arc::clone(&self.server);
        let committed = self.with_vault(move |open, _| {
            open.change(|vault| match vault.commit(&proposal, server.identity(), server.now()) {
                Ok(certificate) => Ok(ServerMessage::Committed(certificate)),
                // The head may have moved since the proposal was looked at.
                Err(VaultError::Update(UpdateError::Conflict(conflict))) => {
                    Ok(ServerMessage::Conflict(conflict, vault.head().cloned().map(Box::new)))
                }
                Err(error) => Err(error),
            })
        });
        match committed.await {
            Ok(message) => self.say(message).await,
            Err(error) => self.refuse(&error).await,
        }
    }

    async fn answer(&mut self, question: ServerOrder) -> Result<(), ()> {
        let answered = self.with_vault(move |open, peer| match question {
            ServerOrder::Versions(before, most) => open.read(|vault| {
                vault.check_reader(&peer)?;
                Ok(ServerMessage::Versions(vault.versions(before, most)))
            }),
            ServerOrder::Root(number) => open.read(|vault| {
                vault.check_reader(&peer)?;
                vault.version(number).map(|(version, _)| ServerMessage::Root(Box::new(version)))
            }),
            ServerOrder::GetUpdate(number) => open.read(|vault| {
                vault.check_reader(&peer)?;
                vault.version(number).map(|(_, update)| ServerMessage::Update(Box::new(update)))
            }),
            ServerOrder::Drop(statement) => open.change(|vault| {
                let number = statement.number;
                vault.drop_versions(*statement).map(|()| ServerMessage::Dropped(number))
            }),
            _ => Err(VaultError::NotAllowed("this is no question")),
        });
        match answered.await {
            Ok(message) => self.say(message).await,
            Err(error) => self.refuse(&error).await,
        }
    }

    /// Sends objects in order, some megabytes at a time.
    async fn send_objects(&mut self, hashes: Vec<Digest>) -> Result<(), ()> {
        let mut left = hashes;
        while !left.is_empty() {
            let asked = left;
            let read = self.with_vault(move |open, peer| {
                open.read(|vault| {
                    vault.check_reader(&peer)?;
                    let (mut found, mut len) = (Vec::new(), 0);
                    for hash in &asked {
                        let object = vault.object(hash).unwrap_or_else(|error| {
                            tracing::warn!(%error, "an object is not sent");
                            None
                        });
                        len += object.as_ref().map_or(0, Vec::len);
                        found.push(object.map_or(ServerMessage::Missing(*hash), |object| {
                            ServerMessage::Object(object.into())
                        }));
                        if len >= SENT_AT_ONCE {
                            break;
                        }
                    }
                    let rest = asked[found.len()..].to_vec();
                    Ok((found, rest))
                })
            });
            match read.await {
                Ok((found, rest)) => {
                    left = rest;
                    for message in found {
                        self.say(message).await?;
                    }
                }
                // Each object that was asked for has an answer of its own: with this one the connection ends.
                Err(error) => {
                    self.refuse(&error).await?;
                    let _ = self.writer.flush().await;
                    return Err(());
                }
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

    async fn with_vault<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&OpenVault, NodeId) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, VaultError> {
        let (vault, peer) = (self.vault.clone(), self.peer);
        let vault = vault.ok_or(VaultError::NotAllowed("no vault was named"))?;
        blocking(move || work(&vault, peer)).await
    }
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
