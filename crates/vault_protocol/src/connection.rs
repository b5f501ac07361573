//! The client's end on a connection: one request at a time, or several versions one behind the other.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::time::timeout;
use towpath_content::NodeId;
use towpath_link::frame::{ReadError, WriteError};
use towpath_link::tcp::{DialConfig, DialError, dial_any};
use towpath_link::{Connection, Frame, FrameReader, FrameWriter, Identity, PathInfo, PathProbe};
use towpath_vault_format::{Certificate, Conflict, Digest, DropStatement, DroppedRange, Update, VaultId};

use crate::PROTOCOL;
use crate::assembly::Assembly;
use crate::client::{ClientMachine, ServerFault};
use crate::message::{
    ClientMessage, CommittedVersion, MAX_GET, ServerMessage, VaultRefusal, VaultUsage, VersionLine,
};
use crate::whole::{is_small, packed_for_server};

/// Longest time in which a server that owes an answer may send nothing at all.
const QUIET: Duration = Duration::from_secs(120);
/// Addresses of a server that are tried.
const MOST_ADDRESSES: usize = 8;
/// Objects that are asked for before the first of them has come.
const WINDOW: usize = 256;

/// Reason why a server does not answer as it was asked.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// Its name is not known, or it can't be reached.
    #[error("{address}: can't be looked up")]
    Lookup {
        /// The address.
        address: String,
        /// Reason.
        source: io::Error,
    },
    /// There is no connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection ended.
    #[error("the connection with the server broke")]
    Read(#[from] ReadError),
    /// The connection ended.
    #[error("the connection with the server broke")]
    Write(#[from] WriteError),
    /// It ended before the answer.
    #[error("the server hung up")]
    HungUp,
    /// Nothing came.
    #[error("the server sent nothing for {QUIET:?}")]
    Quiet,
    /// The server lies or can't be understood.
    #[error(transparent)]
    Fault(#[from] ServerFault),
    /// The server says no.
    #[error("the server refuses: {why}")]
    Refused {
        /// For programs.
        refusal: VaultRefusal,
        /// The server's words.
        why: String,
    },
    /// A block that the server wants can't be given.
    #[error("a block can't be read")]
    Block(#[source] io::Error),
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitAnswer {
    /// It is committed. The certificate is the server's and of the root that was signed.
    Committed(Certificate),
    /// It is not, because of what the head has.
    Conflict(Conflict, Option<Box<CommittedVersion>>),
}

/// What a server tells of a version that is not signed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalPaths {
    /// Nodes along the paths that change.
    Nodes(Vec<Bytes>),
    /// It is not done, because of what the head has.
    Conflict(Conflict, Option<Box<CommittedVersion>>),
}

/// Gives blocks that are to be sent, by their hash.
pub type BlockGiver<'a> = dyn FnMut(&Digest) -> io::Result<Bytes> + Send + 'a;

/// A connection with a vault's server.
pub struct VaultConnection {
    reader: FrameReader,
    writer: FrameWriter,
    assembly: Assembly,
    machine: ClientMachine,
    server: NodeId,
    member: NodeId,
    path: PathProbe,
}

impl VaultConnection {
    /// Connects to `server` at `address` (`HOST:PORT`), about `vault`, of which a version was `seen`. The head, as the server tells it; `None`:
    /// there is no such vault.
    pub async fn connect(
        server: NodeId,
        address: &str,
        identity: &Identity,
        (vault, seen): (VaultId, Option<CommittedVersion>),
    ) -> Result<(Self, Option<CommittedVersion>), ConnectionError> {
        let connection = dialled(server, address, identity).await?;
        Self::over(connection, identity.node_id(), (vault, seen)).await
    }

    /// Connects without heeding what the server tells of its newest version. Who knows a head can read what it proves, though the
    /// server lies about what came after it.
    pub async fn connect_unheard(
        server: NodeId,
        address: &str,
        identity: &Identity,
        vault: VaultId,
    ) -> Result<Self, ConnectionError> {
        let mut this = Self::begun(dialled(server, address, identity).await?, identity.node_id(), vault);
        let hello = this.machine.hello_unheard();
        this.send(hello).await?;
        this.writer.flush().await?;
        this.pass_over_answer().await?;
        Ok(this)
    }

    /// Begins on a connection of `member` that stands.
    pub async fn over(
        connection: Connection,
        member: NodeId,
        (vault, seen): (VaultId, Option<CommittedVersion>),
    ) -> Result<(Self, Option<CommittedVersion>), ConnectionError> {
        let mut this = Self::begun(connection, member, vault);
        this.machine = ClientMachine::new(this.server, vault).having_seen(seen);
        let head = this.head_again().await?;
        Ok((this, head))
    }

    fn begun(connection: Connection, member: NodeId, vault: VaultId) -> Self {
        let (server, path) = (connection.peer, connection.info.clone());
        let (reader, writer) = connection.split();
        let machine = ClientMachine::new(server, vault);
        Self { reader, writer, assembly: Assembly::default(), machine, server, member, path }
    }

    /// The server's node id.
    pub const fn server(&self) -> NodeId {
        self.server
    }

    /// The path as the system measures it, where it can.
    pub fn path(&self) -> Option<PathInfo> {
        self.path.read()
    }

    async fn head_again(&mut self) -> Result<Option<CommittedVersion>, ConnectionError> {
        let hello = self.machine.hello();
        match self.ask(hello).await? {
            ServerMessage::Head(head) => Ok(head.map(|head| *head)),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// Commits a version whose root, of hash `root`, the writer has signed. With `pushes` all its blocks are sent at once, which
    /// saves a round trip; without it only those that the server lacks.
    pub async fn commit(
        &mut self,
        update: Update,
        (root, signature): (Digest, [u8; 64]),
        pushes: bool,
        blocks: &mut BlockGiver<'_>,
    ) -> Result<CommitAnswer, ConnectionError> {
        let hashes: Vec<Digest> = update.blocks.iter().map(|block| block.hash).collect();
        match pushes {
            true => self.begin_commit(update, (root, signature), blocks).await?,
            false => {
                let proposal = self.machine.propose(update, Some((root, signature)), false);
                self.send(proposal).await?;
                self.writer.flush().await?;
            }
        }
        self.committed(&hashes, blocks).await
    }

    /// Sends blocks before their version. A server keeps them if it can; what it lacks when the version comes it asks for.
    pub async fn send_early(&mut self, blocks: Vec<Bytes>) -> Result<(), ConnectionError> {
        for block in blocks {
            self.send(ClientMessage::Block(block)).await?;
        }
        Ok(self.writer.flush().await?)
    }

    /// Sends a version with all its blocks and does not wait for the answer, which [`Self::next_commit`] gives. Answers come in
    /// the order of the versions; the next may be based on this one.
    pub async fn begin_commit(
        &mut self,
        update: Update,
        (root, signature): (Digest, [u8; 64]),
        blocks: &mut BlockGiver<'_>,
    ) -> Result<(), ConnectionError> {
        let hashes: Vec<Digest> = update.blocks.iter().map(|block| block.hash).collect();
        if is_small(&update) {
            let bytes = hashes.iter().map(&mut *blocks).collect::<io::Result<Vec<Bytes>>>();
            let bytes = bytes.map_err(ConnectionError::Block)?;
            let packed = packed_for_server(&update, self.member, &bytes);
            self.machine.propose(update, Some((root, signature)), true);
            self.send(ClientMessage::Whole { signature, packed }).await?;
        } else {
            let proposal = self.machine.propose(update, Some((root, signature)), true);
            self.send(proposal).await?;
            self.send_blocks(hashes.iter(), blocks).await?;
        }
        Ok(self.writer.flush().await?)
    }

    /// The answer to the first version that [`Self::begin_commit`] sent and that has none yet.
    pub async fn next_commit(&mut self) -> Result<CommitAnswer, ConnectionError> {
        self.committed(&[], &mut |_| Err(io::ErrorKind::NotFound.into())).await
    }

    /// Proposes a version without having the tree of its base: the nodes along the changed paths, of which its root can be proved; or
    /// what stands against it. After nodes nothing is asked before [`Self::sign`].
    pub async fn propose_unread(&mut self, update: Update) -> Result<ProposalPaths, ConnectionError> {
        let proposal = self.machine.propose(update, None, false);
        match self.ask(proposal).await? {
            ServerMessage::Paths(nodes) => Ok(ProposalPaths::Nodes(nodes)),
            ServerMessage::Conflict(conflict, head) => Ok(ProposalPaths::Conflict(conflict, head)),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// Commits the version that was proposed, whose new blocks are `hashes`, in order.
    pub async fn sign(
        &mut self,
        (root, signature): (Digest, [u8; 64]),
        hashes: &[Digest],
        blocks: &mut BlockGiver<'_>,
    ) -> Result<CommitAnswer, ConnectionError> {
        let sign = self.machine.sign(root, signature);
        self.send(sign).await?;
        self.writer.flush().await?;
        self.committed(hashes, blocks).await
    }

    /// Takes back what was proposed. Nothing more is asked: the connection may hold an answer to it.
    pub async fn withdraw(&mut self) -> Result<(), ConnectionError> {
        let withdraw = self.machine.withdraw();
        self.send(withdraw).await?;
        Ok(self.writer.flush().await?)
    }

    async fn committed(
        &mut self,
        hashes: &[Digest],
        blocks: &mut BlockGiver<'_>,
    ) -> Result<CommitAnswer, ConnectionError> {
        loop {
            match self.answer().await? {
                ServerMessage::Committed(certificate) => return Ok(CommitAnswer::Committed(certificate)),
                ServerMessage::Conflict(why, head) => return Ok(CommitAnswer::Conflict(why, head)),
                ServerMessage::Wants(wanted) => {
                    let wanted = wanted.iter().filter_map(|place| hashes.get(*place as usize));
                    self.send_blocks(wanted, blocks).await?;
                    self.writer.flush().await?;
                }
                _ => return Err(ServerFault::Unasked.into()),
            }
        }
    }

    async fn send_blocks(
        &mut self,
        hashes: impl Iterator<Item = &Digest>,
        blocks: &mut BlockGiver<'_>,
    ) -> Result<(), ConnectionError> {
        for hash in hashes {
            let block = blocks(hash).map_err(ConnectionError::Block)?;
            self.send(ClientMessage::Block(block)).await?;
        }
        Ok(())
    }

    /// Gets objects, in order. Each is given to `take` with its hash, which it has; `None`: the server has none of it.
    pub async fn get(
        &mut self,
        hashes: &[Digest],
        mut take: impl FnMut(Digest, Option<Bytes>),
    ) -> Result<(), ConnectionError> {
        let mut asked = hashes.chunks(WINDOW.min(MAX_GET));
        let mut due = hashes.iter();
        // One batch is on its way while the one before it comes.
        for batch in asked.by_ref().take(2) {
            self.begin_get(batch).await?;
        }
        for batch in hashes.chunks(WINDOW.min(MAX_GET)) {
            for hash in due.by_ref().take(batch.len()) {
                take(*hash, self.next_object().await?);
            }
            if let Some(batch) = asked.next() {
                self.begin_get(batch).await?;
            }
        }
        Ok(())
    }

    /// Asks for some objects and does not wait for them: [`Self::next_object`] gives each, in order. [`MAX_GET`] at most.
    pub async fn begin_get(&mut self, hashes: &[Digest]) -> Result<(), ConnectionError> {
        let get = self.machine.get(hashes.to_vec());
        self.send(get).await?;
        Ok(self.writer.flush().await?)
    }

    /// The first object that was asked for and did not come yet, with the bytes of its hash; `None`: the server has none of it. May be
    /// dropped before it is done: then it is the next one's.
    pub async fn next_object(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        match self.answer().await? {
            ServerMessage::Object(object) => Ok(Some(object)),
            ServerMessage::Missing(_) => Ok(None),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// Versions before number `before`, the newest first.
    pub async fn versions(&mut self, before: u64, most: u64) -> Result<Vec<VersionLine>, ConnectionError> {
        let versions = self.machine.versions(before, most);
        match self.ask(versions).await? {
            ServerMessage::Versions(lines) => Ok(lines),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// The version of this number.
    pub async fn root(&mut self, number: u64) -> Result<CommittedVersion, ConnectionError> {
        let root = self.machine.root(number);
        match self.ask(root).await? {
            ServerMessage::Root(version) => Ok(*version),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// The versions of these numbers; `None` for each that the server does not have. They are asked for many at a time.
    pub async fn roots(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ConnectionError> {
        let mut versions = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(WINDOW) {
            for number in some {
                let root = self.machine.root(*number);
                self.send(root).await?;
            }
            self.writer.flush().await?;
            for _ in some {
                versions.push(match self.answer().await {
                    Ok(ServerMessage::Root(version)) => Some(*version),
                    Ok(_) => return Err(ServerFault::Unasked.into()),
                    Err(ConnectionError::Refused { refusal: VaultRefusal::NoVersion, .. }) => None,
                    Err(error) => return Err(error),
                });
            }
        }
        Ok(versions)
    }

    /// The update that made the version of this number, packed ([`crate::whole::unpacked_update`]).
    pub async fn update(&mut self, number: u64) -> Result<Bytes, ConnectionError> {
        let get = self.machine.get_update(number);
        match self.ask(get).await? {
            ServerMessage::Update(packed) => Ok(packed),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// Says which versions may go.
    pub async fn drop_versions(&mut self, statement: DropStatement) -> Result<(), ConnectionError> {
        let statement = self.machine.drop_versions(statement);
        match self.ask(statement).await? {
            ServerMessage::Dropped(_) => Ok(()),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// What the vault takes, and would not if these versions were dropped, too.
    pub async fn usage(&mut self, dropped: Vec<DroppedRange>) -> Result<VaultUsage, ConnectionError> {
        let usage = self.machine.usage(dropped);
        match self.ask(usage).await? {
            ServerMessage::Usage(usage) => Ok(usage),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// The words by which versions were dropped, from number `first` on: some of them, none at the end.
    pub async fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ConnectionError> {
        let statements = self.machine.statements(first);
        match self.ask(statements).await? {
            ServerMessage::Statements(statements) => Ok(statements),
            _ => Err(ServerFault::Unasked.into()),
        }
    }

    /// Says goodbye.
    pub async fn finish(self) -> Result<(), ConnectionError> {
        Ok(self.writer.finish().await?)
    }

    async fn ask(&mut self, message: ClientMessage) -> Result<ServerMessage, ConnectionError> {
        self.send(message).await?;
        self.writer.flush().await?;
        self.answer().await
    }

    async fn send(&mut self, message: ClientMessage) -> Result<(), ConnectionError> {
        for (kind, body) in message.to_frames() {
            self.writer.send_bytes(kind, &[], body).await?;
        }
        Ok(())
    }

    async fn answer(&mut self) -> Result<ServerMessage, ConnectionError> {
        loop {
            let frame = self.frame().await?;
            let Some((kind, body)) = self.assembly.take(frame).map_err(ServerFault::from)? else {
                continue;
            };
            let message = ServerMessage::from_body(kind, &body).map_err(ServerFault::from)?;
            match message.map(|message| self.machine.receive(message)).transpose()? {
                None => {}
                Some(ServerMessage::Refused(refusal, why)) => {
                    return Err(ConnectionError::Refused { refusal, why });
                }
                Some(message) => return Ok(message),
            }
        }
    }

    /// Takes one answer, whatever it is, unless the server refuses.
    async fn pass_over_answer(&mut self) -> Result<(), ConnectionError> {
        loop {
            let frame = self.frame().await?;
            let Some((kind, body)) = self.assembly.take(frame).map_err(ServerFault::from)? else {
                continue;
            };
            match ServerMessage::from_body(kind, &body) {
                Ok(None) => {}
                Ok(Some(ServerMessage::Refused(refusal, why))) => {
                    return Err(ConnectionError::Refused { refusal, why });
                }
                Ok(Some(_)) | Err(_) => return Ok(()),
            }
        }
    }

    async fn frame(&mut self) -> Result<Frame, ConnectionError> {
        loop {
            let before = self.reader.received();
            match timeout(QUIET, self.reader.next()).await {
                Ok(frame) => return frame?.ok_or(ConnectionError::HungUp),
                Err(_) if self.reader.received() > before => {}
                Err(_) => return Err(ConnectionError::Quiet),
            }
        }
    }
}

async fn dialled(server: NodeId, address: &str, identity: &Identity) -> Result<Connection, ConnectionError> {
    let found = tokio::net::lookup_host(address).await;
    let found = found.map_err(|source| ConnectionError::Lookup { address: address.to_owned(), source })?;
    let addresses: Vec<_> = found.take(MOST_ADDRESSES).collect();
    let how = DialConfig { protocol: PROTOCOL, ..DialConfig::default() };
    Ok(dial_any(&addresses, identity, server, &how).await?)
}
