//! One guest's task, up to when it is joined with another.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;
use towpath_link::frame::ReadError;
use towpath_link::{Connection, Frame, FrameReader, FrameWriter};

use super::desk::{DeskOrder, Presence, RelayShared, Seat};
use super::forwarding::forward;
use crate::message::{FailReason, RelayMessage};
use crate::table::{ANSWER_LIMIT, RelayRules, TableRequest};

/// So long a guest may take to say what it wants.
const FIRST_LIMIT: Duration = Duration::from_secs(10);
/// A waiting node that says nothing for so long is gone: it asks three times in that time.
const WAITING_SILENCE: Duration = Duration::from_secs(70);
/// The longest frame before two guests are joined.
const LONGEST_REQUEST: usize = 128;
/// The same of the block that a caller sends at once: the beginning of a handshake.
const LONGEST_EARLY: usize = 4 << 10;
/// So long a guest that is sent away may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a guest's stay ended.
#[derive(Debug)]
pub(super) enum Stay {
    /// It hung up, or its connection broke.
    Gone,
    /// It was sent away.
    Dismissed(FailReason),
    /// Its circuit is over.
    Joined,
}

/// Serves a guest to its end.
pub(super) async fn attend(
    shared: &Arc<RelayShared>,
    connection: Connection,
    remote: IpAddr,
    token: CancellationToken,
) -> Stay {
    let Connection { mut reader, mut writer, binding, peer, .. } = connection;
    reader.hold_short(true);
    reader.limit(LONGEST_REQUEST);
    let mut presence = match shared.enter(peer, remote) {
        Ok(presence) => presence,
        Err(why) => return dismiss(&mut writer, why).await,
    };
    let request = match timeout(FIRST_LIMIT, next_message(&mut reader)).await {
        Ok(GuestNext::Message(message)) => requested(message, &shared.rules, &peer, &binding),
        Ok(GuestNext::Gone) => return Stay::Gone,
        Ok(GuestNext::Bad) | Err(_) => None,
    };
    let Some(request) = request else { return dismiss(&mut writer, FailReason::Violation).await };
    presence.request(request);
    let seated = match request {
        TableRequest::Wait { .. } => attend_waiting(&mut presence, &mut reader, &mut writer, &token).await,
        _ => seat(&mut presence, &mut reader, matches!(request, TableRequest::Call { .. }), &token).await,
    };
    match seated {
        Ok((seat, early)) => {
            presence.is_joined();
            forward(shared, (reader, early), writer, *seat, &token).await;
            Stay::Joined
        }
        Err(Some(why)) => dismiss(&mut writer, why).await,
        Err(None) => Stay::Gone,
    }
}

/// A guest's place at a circuit, and the block that it sent before it had that. An error without a reason is a guest that left.
type Seated = Result<(Box<Seat>, Option<Frame>), Option<FailReason>>;

/// What a guest's first message asks for.
fn requested(
    message: RelayMessage,
    rules: &RelayRules,
    node: &NodeId,
    binding: &[u8; 32],
) -> Option<TableRequest> {
    match message {
        RelayMessage::Wait { pass } => {
            Some(TableRequest::Wait { is_allowed: rules.may_wait(node, binding, pass.as_ref()) })
        }
        RelayMessage::Call { node, circuit } => Some(TableRequest::Call { node, circuit }),
        RelayMessage::Take { circuit } => Some(TableRequest::Take { circuit }),
        RelayMessage::Resume { circuit, node: other, received, pass } => {
            let is_allowed = rules.may_wait(node, binding, pass.as_ref());
            Some(TableRequest::Resume { circuit, node: other, received, is_allowed })
        }
        _ => None,
    }
}

async fn dismiss(writer: &mut FrameWriter, why: FailReason) -> Stay {
    // It may have left already.
    let _ = timeout(FAREWELL, RelayMessage::Fail { why }.send(writer)).await;
    Stay::Dismissed(why)
}

/// A node that waits to be called.
async fn attend_waiting(
    presence: &mut Presence,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    token: &CancellationToken,
) -> Seated {
    let mut silent_at = Instant::now() + WAITING_SILENCE;
    loop {
        let answer = tokio::select! {
            order = presence.order() => match order {
                DeskOrder::Tell(message) => message,
                DeskOrder::Dismiss(why) => return Err(Some(why)),
                DeskOrder::Join(seat) => return Ok((seat, None)),
            },
            next = next_message(reader) => match next {
                GuestNext::Message(RelayMessage::Ping) => {
                    silent_at = Instant::now() + WAITING_SILENCE;
                    RelayMessage::Ok { received: 0 }
                }
                GuestNext::Message(RelayMessage::Take { circuit }) => {
                    presence.request(TableRequest::Take { circuit });
                    continue;
                }
                GuestNext::Gone => return Err(None),
                _ => return Err(Some(FailReason::Violation)),
            },
            () = sleep_until(silent_at) => return Err(None),
            () = token.cancelled() => return Err(Some(FailReason::ShuttingDown)),
        };
        let sent = timeout(FIRST_LIMIT, answer.send(writer)).await;
        reader.rest();
        if !matches!(sent, Ok(Ok(()))) || writer.rest().await.is_err() {
            return Err(None);
        }
    }
}

/// Waits for the other end. A caller may have sent its first block.
async fn seat(
    presence: &mut Presence,
    reader: &mut FrameReader,
    is_caller: bool,
    token: &CancellationToken,
) -> Seated {
    let (mut late_at, mut early) = (Instant::now() + ANSWER_LIMIT, None);
    let longest = if is_caller { LONGEST_EARLY } else { 0 };
    reader.limit(longest.max(LONGEST_REQUEST));
    loop {
        tokio::select! {
            order = presence.order() => match order {
                DeskOrder::Join(seat) => return Ok((seat, early)),
                DeskOrder::Dismiss(why) => return Err(Some(why)),
                DeskOrder::Tell(_) => {}
            },
            next = reader.next() => match next {
                // It may have come together with the request.
                Ok(Some(frame)) if early.is_none() && frame.body.len() <= longest => early = Some(frame),
                // There is nothing more to say before the answer.
                Ok(Some(_)) | Err(ReadError::Malformed { .. }) => return Err(Some(FailReason::Violation)),
                Ok(None) | Err(_) => return Err(None),
            },
            () = sleep_until(late_at) => {
                presence.look_for_late();
                late_at += Duration::from_secs(1);
            }
            () = token.cancelled() => return Err(Some(FailReason::ShuttingDown)),
        }
    }
}

/// What came of a guest.
enum GuestNext {
    Message(RelayMessage),
    /// Bytes that are no message.
    Bad,
    Gone,
}

/// Cancel-safe.
async fn next_message(reader: &mut FrameReader) -> GuestNext {
    match reader.next().await {
        Ok(Some(frame)) => match RelayMessage::decode(frame.kind, frame.body) {
            Ok(message) => GuestNext::Message(message),
            Err(_) => GuestNext::Bad,
        },
        Err(ReadError::Malformed { .. }) => GuestNext::Bad,
        Ok(None) | Err(_) => GuestNext::Gone,
    }
}
