//! One holder on a connection: what is asked of it goes there in order, and each answer comes back as an event.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender};
use towpath_dealer::SourceNumber;
use towpath_link::Identity;
use towpath_vault_format::{Digest, VaultId};
use towpath_vault_protocol::{ConnectionError, ServerFault, VaultConnection};

use crate::holder::{AskedObjects, HolderEvent, HolderFault, HolderPlace};

/// Objects on their way: questions for more could fill the line up while nobody reads it.
const UNDER_WAY: usize = 512;
/// Objects that are asked for in one message.
const TOGETHER: usize = 128;
/// Round trip of a holder whose system does not tell.
const USUAL: Duration = Duration::from_millis(20);

/// A holder's end of the pool's channels.
pub(crate) struct HolderLink {
    pub source: SourceNumber,
    pub asked: Receiver<AskedObjects>,
    pub events: Sender<(SourceNumber, HolderEvent)>,
}

impl HolderLink {
    /// Connects and gives what is asked until nobody asks any more, or something is wrong.
    pub async fn run(mut self, place: HolderPlace, member: Identity, vault: VaultId) {
        // The pool may be gone: then nobody wants to know.
        if let Err(error) = self.serve(&place, &member, vault).await {
            let _ = self.events.send((self.source, HolderEvent::Ended(fault(&error)))).await;
        }
    }

    async fn serve(
        &mut self,
        place: &HolderPlace,
        member: &Identity,
        vault: VaultId,
    ) -> Result<(), ConnectionError> {
        // What it tells of versions does not matter: objects have the hashes that a proved root leads to.
        let connected = VaultConnection::connect_unheard(place.node, &place.address, member, vault);
        let mut connection = connected.await?;
        let measured = connection.path().map(|path| path.min_rtt).filter(|rtt| !rtt.is_zero());
        let round_trip = measured.unwrap_or(USUAL);
        if self.tell(HolderEvent::Connected { round_trip }).await {
            self.give(&mut connection).await?;
        }
        connection.finish().await
    }

    async fn give(&mut self, connection: &mut VaultConnection) -> Result<(), ConnectionError> {
        let (mut waiting, mut under_way) = (VecDeque::new(), VecDeque::new());
        loop {
            while under_way.len() + TOGETHER <= UNDER_WAY && !waiting.is_empty() {
                let some: AskedObjects = waiting.drain(..waiting.len().min(TOGETHER)).collect();
                let hashes: Vec<Digest> = some.iter().map(|(_, hash)| *hash).collect();
                under_way.extend(some.into_iter().map(|(tag, _)| tag));
                connection.begin_get(&hashes).await?;
            }
            tokio::select! {
                asked = self.asked.recv() => match asked {
                    Some(asked) => waiting.extend(asked),
                    None => return Ok(()),
                },
                object = connection.next_object(), if !under_way.is_empty() => {
                    let object = object?;
                    let Some(tag) = under_way.pop_front() else { return Ok(()) };
                    if !self.tell(HolderEvent::Gave { tag, object }).await {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// False: nobody listens any more.
    async fn tell(&self, event: HolderEvent) -> bool {
        self.events.send((self.source, event)).await.is_ok()
    }
}

fn fault(error: &ConnectionError) -> HolderFault {
    match error {
        ConnectionError::Refused { why, .. } => HolderFault::Refused(why.clone()),
        ConnectionError::Fault(ServerFault::OtherObject(hash)) => HolderFault::OtherBytes(*hash),
        ConnectionError::Fault(fault) => HolderFault::Nonsense(fault.to_string()),
        error => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            HolderFault::Unreachable(format!("{error}{}", cause.unwrap_or_default()))
        }
    }
}
