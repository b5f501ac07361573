//! The sending side, from its first entry to the receiver's summary.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use towpath_api::ApiError;
use towpath_plugins::direct::ControlReceiver;

use super::events::CopySummary;
use super::message::{Asks, Empty, Message, violation};
use super::race::Stood;
use super::reading::Ask;
use super::sender::{Sender, hung_up};
use super::side::{Side, joined, told_error};
use super::source::Sources;

/// Tells the receiver what is in `sources` and answers what it asks, until it says that all is in
/// place; returns its summary. Connections that `stood` may carry contents.
pub async fn send(
    side: &Side,
    sources: Sources,
    inbox: &mut ControlReceiver,
    stood: mpsc::UnboundedReceiver<Stood>,
) -> Result<CopySummary, ApiError> {
    let sender = Sender::new(
        Arc::clone(&side.service.store),
        Arc::clone(&side.offers),
        side.control.clone(),
        side.events.clone(),
        &side.options,
    );
    let (asks, asked) = mpsc::unbounded_channel();
    let telling = spawn(Arc::clone(&sender), move |sender| sender.tell(sources));
    let answering = spawn(Arc::clone(&sender), move |sender| sender.answer_all(asked));
    let hearing = async {
        loop {
            let message = Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)?;
            match message {
                Message::Finished(json) => {
                    return serde_json::from_slice(&json).map_err(|error| violation(&error.to_string()));
                }
                Message::Event(json) => side.events.pass(&json).await?,
                Message::Fatal(fatal) => return Err(told_error(&fatal)),
                // Contents that go with their names would go past the inspectors.
                Message::Bases(_) if side.service.processors().inspect_any() => {}
                Message::Asks(wanted) if side.service.processors().inspect_any() => {
                    sender.hear(Message::Asks(Asks { inline: 0, ..wanted }), &asks)?;
                }
                message => sender.hear(message, &asks)?,
            }
        }
    };
    let failing = async {
        // A side that fails explains why the other one hangs up.
        match tokio::try_join!(joined(telling), joined(answering)) {
            Err(error) => error,
            Ok(_) => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = hearing => result,
        error = failing => Err(error),
        never = carry(&sender, &asks, stood) => match never {},
    };
    sender.end();
    result
}

/// Lets contents go over each connection that the receiver opens for them, as long as it stands.
async fn carry(
    sender: &Arc<Sender>,
    asks: &mpsc::UnboundedSender<Vec<Ask>>,
    mut stood: mpsc::UnboundedReceiver<Stood>,
) -> Infallible {
    let mut ways = JoinSet::new();
    while let Some(way) = stood.recv().await {
        while ways.try_join_next().is_some() {}
        ways.spawn(carry_over(Arc::clone(sender), asks.clone(), way));
    }
    while ways.join_next().await.is_some() {}
    std::future::pending().await
}

async fn carry_over(sender: Arc<Sender>, asks: mpsc::UnboundedSender<Vec<Ask>>, (control, mut inbox): Stood) {
    while let Some(message) = inbox.next().await {
        // Newer receivers may have more to say here.
        if let Ok(Message::Carry(Empty {})) = Message::from_bytes(message) {
            sender.carry(control.clone());
        }
    }
    sender.lost(&asks);
}

fn spawn(
    sender: Arc<Sender>,
    work: impl FnOnce(&Arc<Sender>) -> Result<(), ApiError> + Send + 'static,
) -> JoinHandle<Result<(), ApiError>> {
    tokio::task::spawn_blocking(move || work(&sender))
}
