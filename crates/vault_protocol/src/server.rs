//! The server's end: which message is allowed when, and what is to be done for it. Pure: who calls it does it and tells the result.
//!
//! ```text
//!   New ── Hello ──► Ready ── Propose ──► judged ─┬─► Receiving ── last Block ─┬─► Commit
//!                      ▲                          │                            └─► Offered ── Sign ──► Commit
//!                      └──── all that is done ────┴─► Discarding (blocks of what was refused follow)
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use towpath_vault_format::{Conflict, Digest, DropStatement, Update, VaultId};

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
    /// Find the vault; then [`ServerMachine::opened`].
    Open(VaultId),
    /// See whether the proposal can be done; then [`ServerMachine::judged`]. True: it has no signature yet, so the paths are wanted.
    Judge(Box<Proposal>),
    /// Keep a block that is as it was announced; then [`ServerMachine::kept`].
    Keep(Digest, Bytes),
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
    /// Say this.
    Answer(ServerMessage),
    /// Nothing.
    Wait,
}

/// What became of a proposal that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
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
enum ServerState {
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
    state: ServerState,
}

impl ServerMachine {
    /// True if nothing more is heard on this connection.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, ServerState::Over)
    }

    /// True while the client has said what it wants and owes nothing.
    pub const fn is_idle(&self) -> bool {
        matches!(self.state, ServerState::New | ServerState::Ready)
    }

    /// Takes a message.
    pub fn on(&mut self, message: ClientMessage) -> ServerOrder {
        let state = std::mem::replace(&mut self.state, ServerState::Over);
        let (state, order) = match (state, message) {
            (ServerState::New, ClientMessage::Hello(vault)) => (ServerState::New, ServerOrder::Open(vault)),
            (ServerState::Ready, ClientMessage::Propose { update, signature, pushes }) => {
                let proposal = Box::new(Proposal { update: *update, signature });
                (ServerState::Judging(pushes), ServerOrder::Judge(proposal))
            }
            (ServerState::Receiving(receipt), message) => receipt.on(message),
            (ServerState::Discarding(left), ClientMessage::Block(_)) => {
                let left = left.saturating_sub(1);
                let state = if left == 0 { ServerState::Ready } else { ServerState::Discarding(left) };
                (state, ServerOrder::Wait)
            }
            (state @ ServerState::Discarding(_), ClientMessage::Sign(_) | ClientMessage::Withdraw) => {
                (state, ServerOrder::Wait)
            }
            (ServerState::Offered(proposal), ClientMessage::Sign(signature)) => {
                let signature = Some(signature);
                (ServerState::Ready, ServerOrder::Commit(Box::new(Proposal { signature, ..*proposal })))
            }
            (ServerState::Offered(_), ClientMessage::Withdraw) => (ServerState::Ready, ServerOrder::Wait),
            // A signature or a withdrawal may cross the word that it is refused.
            (ServerState::Ready, ClientMessage::Sign(_) | ClientMessage::Withdraw) => {
                (ServerState::Ready, ServerOrder::Wait)
            }
            (state @ (ServerState::Ready | ServerState::Offered(_)), message) => match question(message) {
                Some(order) => (state, order),
                None => violation(),
            },
            _ => violation(),
        };
        self.state = state;
        match order {
            ServerOrder::Wait => self.kept(),
            order => order,
        }
    }

    /// The vault is found, or is known not to be here yet.
    pub fn opened(&mut self) {
        self.state = ServerState::Ready;
    }

    /// A proposal was looked at. What is to be said, and what is to be done then.
    pub fn judged(&mut self, proposal: Box<Proposal>, verdict: Verdict) -> (Vec<ServerMessage>, ServerOrder) {
        let pushes = matches!(self.state, ServerState::Judging(true));
        let count = proposal.update.blocks.len();
        let refused = match verdict {
            Verdict::Possible { lacking, paths } => return self.accept(proposal, pushes, lacking, paths),
            Verdict::Conflict(conflict, head) => ServerMessage::Conflict(conflict, head),
            Verdict::Refused(refusal, why) => ServerMessage::Refused(refusal, why),
        };
        self.state = match pushes && count > 0 {
            true => ServerState::Discarding(count),
            false => ServerState::Ready,
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
        self.state = ServerState::Receiving(Receipt { proposal, coming });
        (messages, self.kept())
    }

    /// A block is kept, or none had to be. What is to be done now.
    pub fn kept(&mut self) -> ServerOrder {
        match std::mem::replace(&mut self.state, ServerState::Over) {
            ServerState::Receiving(receipt) if receipt.coming.is_empty() => {
                match receipt.proposal.signature {
                    Some(_) => {
                        self.state = ServerState::Ready;
                        ServerOrder::Commit(receipt.proposal)
                    }
                    None => {
                        self.state = ServerState::Offered(receipt.proposal);
                        ServerOrder::Wait
                    }
                }
            }
            state => {
                self.state = state;
                ServerOrder::Wait
            }
        }
    }

    /// A block could not be kept. What is to be said; the other blocks that come are passed over.
    pub fn not_kept(&mut self, refusal: VaultRefusal, why: String) -> ServerMessage {
        self.state = match std::mem::replace(&mut self.state, ServerState::Over) {
            ServerState::Receiving(receipt) if !receipt.coming.is_empty() => {
                ServerState::Discarding(receipt.coming.len())
            }
            ServerState::Receiving(_) => ServerState::Ready,
            state => state,
        };
        ServerMessage::Refused(refusal, why)
    }
}

impl Receipt {
    fn on(mut self, message: ClientMessage) -> (ServerState, ServerOrder) {
        match message {
            ClientMessage::Sign(signature) => {
                self.proposal.signature = Some(signature);
                (ServerState::Receiving(self), ServerOrder::Wait)
            }
            ClientMessage::Withdraw => (ServerState::Discarding(self.coming.len()), ServerOrder::Wait),
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
                (ServerState::Receiving(self), order)
            }
            _ => violation(),
        }
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
        _ => None,
    }
}

fn violation() -> (ServerState, ServerOrder) {
    let why = "this can't be understood, or not now".to_owned();
    (ServerState::Over, ServerOrder::Answer(ServerMessage::Refused(VaultRefusal::Malformed, why)))
}
