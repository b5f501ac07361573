//! The server's end: which message is allowed when, and what is to be done for it. Pure: who calls it does it and tells the result.
//!
//! ```text
//!   New ── Hello ──► Ready ── Propose ──► judged ─┬─► Receiving ── last Block ─┬─► Commit
//!                      ▲                          │                            └─► Offered ── Sign ──► Commit
//!                      └──── all that is done ────┴─► Discarding (blocks of what was refused follow)
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use towpath_vault_format::{Conflict, Digest, DropStatement, DroppedRange, Update, VaultId};

use crate::message::SeenVersion;
use crate::message::{ClientMessage, CommittedVersion, ServerMessage, VaultRefusal};

/// A new version that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// What makes it.
    pub update: Update,
    /// Of the writer, over root and update; `None` until it has proved the root.
    pub signature: Option<[u8; 64]>,
}

/// What is to be done for a client. `Answer` ends with the connection if [`ServerMachine::is_over`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerOrder {
    /// Find the vault, whose newest version is told as what it differs in from the one that was seen, if that is here; then [`ServerMachine::opened`].
    Open(VaultId, Option<SeenVersion>),
    /// See whether the proposal can be done; then [`ServerMachine::judged`]. True: it has no signature yet, so the paths are wanted.
    Judge(Box<Proposal>),
    /// Keep a block that is as it was announced; then [`ServerMachine::kept`].
    Keep(Digest, Bytes),
    /// Keep a block that came before its version, if the client may write and there is room: a version that lacks it asks for it.
    KeepEarly(Digest, Bytes),
    /// Commit the version.
    Commit(Box<Proposal>),
    /// Send these objects.
    Send(Vec<Digest>),
    /// Tell versions before a number, so many.
    Versions(u64, u64),
    /// Tell a version.
    Root(u64),
    /// Tell the update that made a version.
    GetUpdate(u64),
    /// Keep a statement.
    Drop(Box<DropStatement>),
    /// Tell what the vault takes, and would not if these versions were dropped.
    Usage(Vec<DroppedRange>),
    /// Tell the statements from this number on.
    Statements(u64),
    /// Say this.
    Answer(ServerMessage),
    /// Nothing.
    Wait,
}

/// What became of a proposal that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalVerdict {
    /// It can be done.
    Possible {
        /// Blocks that are not here, by their place in the update.
        lacking: Vec<u32>,
        /// Nodes along the paths, if they are wanted.
        paths: Option<Vec<Bytes>>,
    },
    /// Something stands against it.
    Conflict(Conflict, Option<Box<CommittedVersion>>),
    /// It is not done.
    Refused(VaultRefusal, String),
}

#[derive(Debug, Default)]
enum TalkState {
    #[default]
    New,
    Ready,
    /// Judged now; true: all its blocks follow.
    Judging(bool),
    Receiving(Receipt),
    Discarding(usize),
    Offered(Box<Proposal>),
    Over,
}

/// Blocks of a proposal that come.
#[derive(Debug)]
struct Receipt {
    proposal: Box<Proposal>,
    /// Places of the blocks that come, in order, and whether each is lacking.
    coming: VecDeque<(u32, bool)>,
}

/// One connection's state.
#[derive(Debug, Default)]
pub struct ServerMachine {
    state: TalkState,
}

impl ServerMachine {
    /// True if nothing more is heard on this connection.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, TalkState::Over)
    }

    /// True while the client has said what it wants and owes nothing.
    pub const fn is_idle(&self) -> bool {
        matches!(self.state, TalkState::New | TalkState::Ready)
    }

    /// Takes a message.
    pub fn on(&mut self, message: ClientMessage) -> ServerOrder {
        let state = std::mem::replace(&mut self.state, TalkState::Over);
        let (state, order) = match state {
            TalkState::New => on_new(message),
            TalkState::Ready => on_ready(message),
            TalkState::Receiving(receipt) => receipt.on(message),
            TalkState::Discarding(left) => on_discarding(left, &message),
            TalkState::Offered(proposal) => on_offered(proposal, message),
            TalkState::Judging(_) | TalkState::Over => violation(),
        };
        self.state = state;
        match order {
            ServerOrder::Wait => self.kept(),
            order => order,
        }
    }

    /// The vault is found, or is known not to be here yet.
    pub fn opened(&mut self) {
        self.state = TalkState::Ready;
    }

    /// A proposal was looked at. What is to be said, and what is to be done then.
    pub fn judged(
        &mut self,
        proposal: Box<Proposal>,
        verdict: ProposalVerdict,
    ) -> (Vec<ServerMessage>, ServerOrder) {
        let pushes = matches!(self.state, TalkState::Judging(true));
        let count = proposal.update.blocks.len();
        let refused = match verdict {
            ProposalVerdict::Possible { lacking, paths } => {
                return self.accept(proposal, pushes, lacking, paths);
            }
            ProposalVerdict::Conflict(conflict, head) => ServerMessage::Conflict(conflict, head),
            ProposalVerdict::Refused(refusal, why) => ServerMessage::Refused(refusal, why),
        };
        self.state = match pushes && count > 0 {
            true => TalkState::Discarding(count),
            false => TalkState::Ready,
        };
        (vec![refused], ServerOrder::Wait)
    }

    fn accept(
        &mut self,
        proposal: Box<Proposal>,
        pushes: bool,
        lacking: Vec<u32>,
        paths: Option<Vec<Bytes>>,
    ) -> (Vec<ServerMessage>, ServerOrder) {
        let mut messages: Vec<ServerMessage> = paths.map(ServerMessage::Paths).into_iter().collect();
        let coming = match pushes {
            true => (0..proposal.update.blocks.len() as u32)
                .map(|place| (place, lacking.binary_search(&place).is_ok()))
                .collect(),
            false => lacking.iter().map(|place| (*place, true)).collect(),
        };
        if !pushes && !lacking.is_empty() {
            messages.push(ServerMessage::Wants(lacking));
        }
        self.state = TalkState::Receiving(Receipt { proposal, coming });
        (messages, self.kept())
    }

    /// A block is kept, or none had to be. What is to be done now.
    pub fn kept(&mut self) -> ServerOrder {
        match std::mem::replace(&mut self.state, TalkState::Over) {
            TalkState::Receiving(receipt) if receipt.coming.is_empty() => match receipt.proposal.signature {
                Some(_) => {
                    self.state = TalkState::Ready;
                    ServerOrder::Commit(receipt.proposal)
                }
                None => {
                    self.state = TalkState::Offered(receipt.proposal);
                    ServerOrder::Wait
                }
            },
            state => {
                self.state = state;
                ServerOrder::Wait
            }
        }
    }

    /// A block could not be kept. What is to be said; the other blocks that come are passed over.
    pub fn not_kept(&mut self, refusal: VaultRefusal, why: String) -> ServerMessage {
        self.state = match std::mem::replace(&mut self.state, TalkState::Over) {
            TalkState::Receiving(receipt) if !receipt.coming.is_empty() => {
                TalkState::Discarding(receipt.coming.len())
            }
            TalkState::Receiving(_) => TalkState::Ready,
            state => state,
        };
        ServerMessage::Refused(refusal, why)
    }
}

impl Receipt {
    fn on(mut self, message: ClientMessage) -> (TalkState, ServerOrder) {
        match message {
            ClientMessage::Sign(signature) => {
                self.proposal.signature = Some(signature);
                (TalkState::Receiving(self), ServerOrder::Wait)
            }
            // All that the client sent of it came before.
            ClientMessage::Withdraw => (TalkState::Ready, ServerOrder::Wait),
            ClientMessage::Block(block) => {
                let Some((place, is_lacking)) = self.coming.pop_front() else { return violation() };
                let Some(announced) = self.proposal.update.blocks.get(place as usize) else {
                    return violation();
                };
                let (hash, stored) = (announced.hash, announced.stored as usize);
                if block.len() != stored || Digest::of(&block) != hash {
                    return violation();
                }
                let order = match is_lacking {
                    true => ServerOrder::Keep(hash, block),
                    false => ServerOrder::Wait,
                };
                (TalkState::Receiving(self), order)
            }
            _ => violation(),
        }
    }
}

fn on_new(message: ClientMessage) -> (TalkState, ServerOrder) {
    match message {
        ClientMessage::Hello(vault, seen) => (TalkState::New, ServerOrder::Open(vault, seen)),
        _ => violation(),
    }
}

fn on_ready(message: ClientMessage) -> (TalkState, ServerOrder) {
    match message {
        ClientMessage::Propose { update, signature, pushes } => {
            let proposal = Box::new(Proposal { update: *update, signature });
            (TalkState::Judging(pushes), ServerOrder::Judge(proposal))
        }
        ClientMessage::Block(block) if !block.is_empty() => {
            (TalkState::Ready, ServerOrder::KeepEarly(Digest::of(&block), block))
        }
        // A signature or a withdrawal may cross the word that it is refused.
        ClientMessage::Sign(_) | ClientMessage::Withdraw => (TalkState::Ready, ServerOrder::Wait),
        message => question(message).map_or_else(violation, |order| (TalkState::Ready, order)),
    }
}

/// Blocks of a proposal that is refused are passed over.
fn on_discarding(left: usize, message: &ClientMessage) -> (TalkState, ServerOrder) {
    match message {
        ClientMessage::Block(_) if left > 1 => (TalkState::Discarding(left - 1), ServerOrder::Wait),
        ClientMessage::Block(_) => (TalkState::Ready, ServerOrder::Wait),
        ClientMessage::Sign(_) | ClientMessage::Withdraw => (TalkState::Discarding(left), ServerOrder::Wait),
        _ => violation(),
    }
}

fn on_offered(proposal: Box<Proposal>, message: ClientMessage) -> (TalkState, ServerOrder) {
    match message {
        ClientMessage::Sign(signature) => {
            let proposal = Proposal { signature: Some(signature), ..*proposal };
            (TalkState::Ready, ServerOrder::Commit(Box::new(proposal)))
        }
        ClientMessage::Withdraw => (TalkState::Ready, ServerOrder::Wait),
        message => question(message).map_or_else(violation, |order| (TalkState::Offered(proposal), order)),
    }
}

/// The order for what changes nothing.
fn question(message: ClientMessage) -> Option<ServerOrder> {
    match message {
        ClientMessage::Get(hashes) => Some(ServerOrder::Send(hashes)),
        ClientMessage::Versions { before, most } => Some(ServerOrder::Versions(before, most)),
        ClientMessage::Root(number) => Some(ServerOrder::Root(number)),
        ClientMessage::GetUpdate(number) => Some(ServerOrder::GetUpdate(number)),
        ClientMessage::Drop(statement) => Some(ServerOrder::Drop(Box::new(statement))),
        ClientMessage::Usage(dropped) => Some(ServerOrder::Usage(dropped)),
        ClientMessage::Statements(first) => Some(ServerOrder::Statements(first)),
        _ => None,
    }
}

fn violation() -> (TalkState, ServerOrder) {
    let why = "this can't be understood, or not now".to_owned();
    (TalkState::Over, ServerOrder::Answer(ServerMessage::Refused(VaultRefusal::Malformed, why)))
}
