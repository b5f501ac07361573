//! The client's end: which answer belongs to which request, and whether it is believed. Pure.
//!
//! Signatures, hashes and numbers are checked here. Whether a head is the one that it should be, by what the client remembers
//! and by the vault's members, is for who asks.

use std::collections::VecDeque;

use thiserror::Error;
use towpath_content::{DecodeError, NodeId};
use towpath_vault_format::{
    Canonical, Certificate, Digest, DropStatement, DroppedRange, SignedRoot, Update, VaultId,
};

use crate::message::SeenVersion;
use crate::message::{ClientMessage, CommittedVersion, ServerMessage};
use crate::newer::made;

/// A server that does not do what it must.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerFault {
    /// Bytes that are no message.
    #[error("the server can't be understood: {0}")]
    Malformed(#[from] DecodeError),
    /// An answer to nothing that was asked.
    #[error("the server answers what was not asked")]
    Unasked,
    /// A certificate or a version that is not as it should be.
    #[error("the server's word is wrong: {0}")]
    Word(&'static str),
    /// An object with other bytes than its hash says.
    #[error("the server sent other bytes for {0}")]
    OtherObject(Digest),
}

/// A request without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AwaitedAnswer {
    Head,
    Proposal { number: u64, update: Digest, root: Option<Digest>, blocks: usize },
    Object(Digest),
    Versions,
    Root(u64),
    Update,
    Dropped(u64),
    Usage,
    Statements(u64),
}

/// One connection's state.
#[derive(Debug)]
pub struct ClientMachine {
    server: NodeId,
    vault: VaultId,
    /// The newest version that was seen.
    seen: Option<CommittedVersion>,
    awaited: VecDeque<AwaitedAnswer>,
}

impl ClientMachine {
    /// With this server, about this vault.
    pub const fn new(server: NodeId, vault: VaultId) -> Self {
        Self { server, vault, seen: None, awaited: VecDeque::new() }
    }

    /// For who has seen this version: the newest one need not be told whole.
    pub fn having_seen(self, seen: Option<CommittedVersion>) -> Self {
        Self { seen, ..self }
    }

    /// Requests without a whole answer.
    pub fn outstanding(&self) -> usize {
        self.awaited.len()
    }

    /// The first message.
    pub fn hello(&mut self) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Head);
        ClientMessage::Hello(self.vault, self.seen.as_ref().map(SeenVersion::of))
    }

    /// The first message, of which the answer is not believed and not given to [`Self::receive`].
    pub const fn hello_unheard(&self) -> ClientMessage {
        ClientMessage::Hello(self.vault, None)
    }

    /// Proposes a version. `signed`: hash of its root, and the signature; without it the server tells the paths.
    pub fn propose(
        &mut self,
        update: Update,
        signed: Option<(Digest, [u8; 64])>,
        pushes: bool,
    ) -> ClientMessage {
        let (number, blocks) = (update.base.map_or(0, |base| base.number + 1), update.blocks.len());
        let root = signed.map(|(root, _)| root);
        self.awaited.push_back(AwaitedAnswer::Proposal { number, update: update.digest(), root, blocks });
        let signature = signed.map(|(_, signature)| signature);
        ClientMessage::Propose { update: Box::new(update), signature, pushes }
    }

    /// Signs the proposal that is answered next.
    pub fn sign(&mut self, signed_root: Digest, signature: [u8; 64]) -> ClientMessage {
        if let Some(AwaitedAnswer::Proposal { root, .. }) = self.awaited.front_mut() {
            *root = Some(signed_root);
        }
        ClientMessage::Sign(signature)
    }

    /// Takes back the proposal that is answered next. No answer comes.
    pub fn withdraw(&mut self) -> ClientMessage {
        if matches!(self.awaited.front(), Some(AwaitedAnswer::Proposal { .. })) {
            self.awaited.pop_front();
        }
        ClientMessage::Withdraw
    }

    /// Asks for objects; each is answered.
    pub fn get(&mut self, hashes: Vec<Digest>) -> ClientMessage {
        self.awaited.extend(hashes.iter().map(|hash| AwaitedAnswer::Object(*hash)));
        ClientMessage::Get(hashes)
    }

    /// Asks for versions before a number, the newest first.
    pub fn versions(&mut self, before: u64, most: u64) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Versions);
        ClientMessage::Versions { before, most }
    }

    /// Asks for a version.
    pub fn root(&mut self, number: u64) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Root(number));
        ClientMessage::Root(number)
    }

    /// Asks for the update that made a version.
    pub fn get_update(&mut self, number: u64) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Update);
        ClientMessage::GetUpdate(number)
    }

    /// Says which versions may go.
    pub fn drop_versions(&mut self, statement: DropStatement) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Dropped(statement.number));
        ClientMessage::Drop(statement)
    }

    /// Asks what the vault takes, and would not if these versions were dropped.
    pub fn usage(&mut self, dropped: Vec<DroppedRange>) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Usage);
        ClientMessage::Usage(dropped)
    }

    /// Asks for the statements from number `first` on.
    pub fn statements(&mut self, first: u64) -> ClientMessage {
        self.awaited.push_back(AwaitedAnswer::Statements(first));
        ClientMessage::Statements(first)
    }

    /// Takes an answer, if it belongs to what was asked and is true as far as can be known here.
    pub fn receive(&mut self, message: ServerMessage) -> Result<ServerMessage, ServerFault> {
        let message = match (message, &self.seen) {
            (ServerMessage::Newer(difference), Some(seen)) => {
                ServerMessage::Head(Some(Box::new(made(seen, &difference)?)))
            }
            (message, _) => message,
        };
        let awaited = self.awaited.front().ok_or(ServerFault::Unasked)?;
        if self.is_last(awaited, &message)? {
            self.awaited.pop_front();
        }
        Ok(message)
    }

    /// True if the answer is whole with this message.
    fn is_last(&self, awaited: &AwaitedAnswer, message: &ServerMessage) -> Result<bool, ServerFault> {
        match (awaited, message) {
            (_, ServerMessage::Refused(..))
            | (AwaitedAnswer::Head, ServerMessage::Head(None))
            | (AwaitedAnswer::Proposal { .. }, ServerMessage::Conflict(_, None))
            | (AwaitedAnswer::Versions, ServerMessage::Versions(_))
            | (AwaitedAnswer::Usage, ServerMessage::Usage(_)) => Ok(true),
            (AwaitedAnswer::Statements(first), ServerMessage::Statements(statements)) => {
                self.believe_statements(*first, statements).map(|()| true)
            }
            (AwaitedAnswer::Head, ServerMessage::Head(Some(head)))
            | (AwaitedAnswer::Proposal { .. }, ServerMessage::Conflict(_, Some(head))) => {
                self.believe(head).map(|()| true)
            }
            (AwaitedAnswer::Root(number), ServerMessage::Root(version))
                if version.signed.root.number == *number =>
            {
                self.believe(version).map(|()| true)
            }
            (AwaitedAnswer::Update, ServerMessage::Update(_)) => Ok(true),
            (AwaitedAnswer::Dropped(number), ServerMessage::Dropped(kept)) if number == kept => Ok(true),
            (
                AwaitedAnswer::Proposal { number, update, root: Some(root), .. },
                ServerMessage::Committed(word),
            ) => self.believe_certificate(word, *number, root, update).map(|()| true),
            (AwaitedAnswer::Proposal { root: None, .. }, ServerMessage::Paths(_)) => Ok(false),
            (AwaitedAnswer::Proposal { blocks, .. }, ServerMessage::Wants(wanted))
                if wanted.last().is_some_and(|last| (*last as usize) < *blocks) =>
            {
                Ok(false)
            }
            (AwaitedAnswer::Object(hash), message) => is_object(hash, message),
            _ => Err(ServerFault::Unasked),
        }
    }

    fn believe(&self, version: &CommittedVersion) -> Result<(), ServerFault> {
        let CommittedVersion { signed, certificate } = version;
        let SignedRoot { root, update, .. } = signed;
        if !signed.is_signed() {
            return Err(ServerFault::Word("a version is not signed by its writer"));
        }
        self.believe_certificate(certificate, root.number, &root.digest(), update)
    }

    /// Whether their deleter is the vault's is for who knows its members.
    fn believe_statements(&self, first: u64, statements: &[DropStatement]) -> Result<(), ServerFault> {
        let in_order = statements.iter().zip(first..).all(|(statement, number)| statement.number == number);
        match statements.iter().all(|statement| statement.vault == self.vault && statement.is_signed()) {
            true if in_order => Ok(()),
            _ => Err(ServerFault::Word("a statement is not signed, or is another one")),
        }
    }

    fn believe_certificate(
        &self,
        certificate: &Certificate,
        number: u64,
        root: &Digest,
        update: &Digest,
    ) -> Result<(), ServerFault> {
        match certificate {
            _ if !certificate.is_signed() => Err(ServerFault::Word("a certificate is not signed")),
            _ if certificate.server != self.server => Err(ServerFault::Word("it is another server's")),
            _ if certificate.vault != self.vault => Err(ServerFault::Word("it is another vault's")),
            _ if certificate.number != number => Err(ServerFault::Word("it is of another version")),
            _ if certificate.root != *root => Err(ServerFault::Word("it is of another root")),
            _ if certificate.update != *update => Err(ServerFault::Word("it is of another update")),
            _ => Ok(()),
        }
    }
}

fn is_object(hash: &Digest, message: &ServerMessage) -> Result<bool, ServerFault> {
    match message {
        ServerMessage::Object(object) if Digest::of(object) == *hash => Ok(true),
        ServerMessage::Object(_) => Err(ServerFault::OtherObject(*hash)),
        ServerMessage::Missing(missing) if missing == hash => Ok(true),
        _ => Err(ServerFault::Unasked),
    }
}

#[cfg(test)]
mod tests;
