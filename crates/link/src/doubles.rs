//! Connections within one program, for tests of what goes over them.

use std::time::Duration;

use tokio::io::{duplex, split};
use towpath_content::NodeId;

use crate::Connection;
use crate::pipe::{self, Role};

/// Longest time for opening.
const LIMIT: Duration = Duration::from_secs(20);

/// Two ends of one connection, which tell each other `nodes`.
///
/// # Panics
///
/// If they can't be opened.
pub async fn connected(nodes: [NodeId; 2]) -> [Connection; 2] {
    let (near, far) = duplex(64 << 10);
    let (near, far) = (split(near), split(far));
    let opened = tokio::try_join!(
        pipe::open(near.0, near.1, nodes[0], Role::Responder, LIMIT),
        pipe::open(far.0, far.1, nodes[1], Role::Initiator, LIMIT),
    );
    let (near, far) = opened.expect("two ends of one program understand each other");
    [near, far]
}
