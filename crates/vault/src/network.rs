//! A vault's server at the other end of a connection.
//!
//! The client's work is on the disk and the processor, in calls that block; this waits for the network on the runtime beside.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_vault_format::{
    Canonical, Certificate, Digest, DropStatement, DroppedRange, SignedRoot, Update, VaultId,
};
use towpath_vault_protocol::whole::sent_len;
use towpath_vault_protocol::{
    CommitAnswer, CommittedVersion, ConnectionError, LineMeter, MeasuredLine, ProposalPaths, VaultConnection,
    VaultUsage,
};

use crate::head::VaultHead;
use crate::server::{RemoteVault, ServerError};

/// Bytes of new blocks that are sent with their version, without asking which of them are there: it saves a round trip. More are sent
/// before it.
pub(crate) const PUSHED: u64 = 4 << 20;

/// A server on a connection. Its calls must be made on a thread that may block.
pub struct NetworkServer {
    runtime: Handle,
    connection: VaultConnection,
    /// The head as it was told at the beginning, until it was asked for.
    greeting: Option<Option<CommittedVersion>>,
    /// Blocks of the next version went already: which ones it lacks the server says.
    has_sent_early: bool,
    /// The update that was proposed and waits for its signature.
    proposed: Option<Digest>,
    meter: LineMeter,
    /// Blocks that went before their version: their bytes, and when the first one did.
    early: Option<(u64, Instant)>,
}

impl NetworkServer {
    /// Connects to `server` at `address` (`HOST:PORT`), as the member `identity` that has `seen` a version of the vault.
    pub fn connect(
        runtime: Handle,
        server: NodeId,
        address: &str,
        identity: &Identity,
        (vault, seen): (VaultId, Option<&VaultHead>),
    ) -> Result<Self, ServerError> {
        let about = (vault, seen.map(VaultHead::version));
        let connected = VaultConnection::connect(server, address, identity, about);
        let connected = runtime.block_on(connected);
        let (connection, head) = connected.map_err(fault)?;
        Ok(Self { greeting: Some(head), ..Self::on(runtime, connection) })
    }

    /// Connects to a server whose word on the newest version is not heeded: for who knows a head.
    pub fn connect_unheard(
        runtime: Handle,
        server: NodeId,
        address: &str,
        identity: &Identity,
        vault: VaultId,
    ) -> Result<Self, ServerError> {
        let connected = VaultConnection::connect_unheard(server, address, identity, vault);
        let connection = runtime.block_on(connected).map_err(fault)?;
        Ok(Self::on(runtime, connection))
    }

    fn on(runtime: Handle, connection: VaultConnection) -> Self {
        let mut meter = LineMeter::default();
        if let Some(path) = connection.path() {
            meter.answered(path.min_rtt.max(Duration::from_micros(1)));
        }
        let (greeting, proposed, early) = (None, None, None);
        Self { runtime, connection, greeting, has_sent_early: false, proposed, meter, early }
    }

    /// Says goodbye.
    pub fn finish(self) {
        // What was committed is, whatever becomes of the connection.
        let _ = self.runtime.block_on(self.connection.finish());
    }

    /// The connection and the runtime it is on.
    pub const fn connection(&mut self) -> (&Handle, &mut VaultConnection) {
        (&self.runtime, &mut self.connection)
    }
}

impl RemoteVault for NetworkServer {
    fn head(&mut self) -> Result<Option<CommittedVersion>, ServerError> {
        if let Some(head) = self.greeting.take() {
            return Ok(head);
        }
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            let newest = connection.versions(u64::MAX, 1).await.map_err(fault)?;
            match newest.first() {
                None => Ok(None),
                Some(line) => connection.root(line.number).await.map(Some).map_err(fault),
            }
        })
    }

    fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, ServerError> {
        let told = self.runtime.block_on(self.connection.versions(before, most)).map_err(fault)?;
        Ok(told.iter().map(|line| line.number).collect())
    }

    fn versions(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ServerError> {
        self.runtime.block_on(self.connection.roots(numbers)).map_err(fault)
    }

    fn update(&mut self, number: u64) -> Result<Option<Bytes>, ServerError> {
        self.runtime.block_on(self.connection.update(number)).map(Some).map_err(fault)
    }

    fn objects(&mut self, names: &[Digest]) -> Result<Vec<Option<Vec<u8>>>, ServerError> {
        let (began, mut bytes) = (Instant::now(), 0);
        let mut objects = Vec::with_capacity(names.len());
        let take = |_, object: Option<Bytes>| {
            bytes += object.as_ref().map_or(0, Bytes::len) as u64;
            objects.push(object.map(Vec::from));
        };
        self.runtime.block_on(self.connection.get(names, take)).map_err(fault)?;
        self.meter.received(bytes, began.elapsed());
        Ok(objects)
    }

    /// The connection's machine compares them.
    fn checks_objects(&self) -> bool {
        true
    }

    fn usage(&mut self, dropped: &[DroppedRange]) -> Result<VaultUsage, ServerError> {
        self.runtime.block_on(self.connection.usage(dropped.to_vec())).map_err(fault)
    }

    fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ServerError> {
        self.runtime.block_on(self.connection.statements(first)).map_err(fault)
    }

    fn drop_versions(&mut self, statement: &DropStatement) -> Result<(), ServerError> {
        self.runtime.block_on(self.connection.drop_versions(statement.clone())).map_err(fault)
    }

    fn send_early(&mut self, blocks: Vec<Vec<u8>>) -> Result<(), ServerError> {
        self.has_sent_early = true;
        self.early.get_or_insert_with(|| (0, Instant::now())).0 +=
            blocks.iter().map(Vec::len).sum::<usize>() as u64;
        let blocks = blocks.into_iter().map(Bytes::from).collect();
        self.runtime.block_on(self.connection.send_early(blocks)).map_err(fault)
    }

    fn paths(&mut self, update: &Update) -> Result<Option<Vec<Vec<u8>>>, ServerError> {
        let paths = self.runtime.block_on(self.connection.propose_unread(update.clone())).map_err(fault)?;
        let ProposalPaths::Nodes(nodes) = paths else { return Ok(None) };
        self.proposed = Some(update.digest());
        Ok(Some(nodes.iter().map(|node| node.to_vec()).collect()))
    }

    fn line(&self) -> MeasuredLine {
        self.meter.line()
    }

    fn withdraw(&mut self) {
        // With the connection it is gone as well.
        let _ = self.runtime.block_on(self.connection.withdraw());
    }

    fn commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<Option<Certificate>, ServerError> {
        let stored: u64 = update.blocks.iter().map(|block| u64::from(block.stored)).sum();
        let (mut sent, began) = self.early.take().unwrap_or((0, Instant::now()));
        sent += sent_len(update);
        let mut give = |name: &Digest| {
            let block = block(name).map(Bytes::from).ok_or_else(lost)?;
            sent += block.len() as u64;
            Ok(block)
        };
        let signature = (signed.root.digest(), signed.signature);
        let pushes = stored <= PUSHED && !std::mem::take(&mut self.has_sent_early);
        let committed = match self.proposed.take().filter(|proposed| *proposed == signed.update) {
            None => {
                let commit = self.connection.commit(update.clone(), signature, pushes, &mut give);
                self.runtime.block_on(commit)
            }
            Some(_) => {
                let hashes: Vec<Digest> = update.blocks.iter().map(|block| block.hash).collect();
                self.runtime.block_on(self.connection.sign(signature, &hashes, &mut give))
            }
        };
        let committed = committed.map_err(fault)?;
        self.meter.sent(sent, began.elapsed());
        match committed {
            CommitAnswer::Committed(certificate) => Ok(Some(certificate)),
            CommitAnswer::Conflict(..) => Ok(None),
        }
    }

    fn begin_commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<(), ServerError> {
        let mut give = |name: &Digest| block(name).map(Bytes::from).ok_or_else(lost);
        let signature = (signed.root.digest(), signed.signature);
        let begun = self.connection.begin_commit(update.clone(), signature, &mut give);
        self.runtime.block_on(begun).map_err(fault)
    }

    fn next_commit(&mut self) -> Result<Option<Certificate>, ServerError> {
        match self.runtime.block_on(self.connection.next_commit()).map_err(fault)? {
            CommitAnswer::Committed(certificate) => Ok(Some(certificate)),
            CommitAnswer::Conflict(..) => Ok(None),
        }
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "a new block is gone from this machine")
}

/// Why a server did not answer, for this crate's callers.
pub fn fault(error: ConnectionError) -> ServerError {
    match error {
        ConnectionError::Refused { why, .. } => ServerError::Refused(why),
        ConnectionError::Fault(fault) => ServerError::Nonsense(fault.to_string()),
        error => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            ServerError::Unreachable(format!("{error}{}", cause.unwrap_or_default()))
        }
    }
}
