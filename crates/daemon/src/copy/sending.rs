//! The sending side, from its first entry to the receiver's summary.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use towpath_api::ApiError;
use towpath_plugins::direct::ControlReceiver;

use super::events::CopySummary;
use super::message::{Asks, Message, violation};
use super::sender::{Sender, hung_up};
use super::side::{Side, joined, told_error};
use super::source::Sources;

/// Tells the receiver what is in `sources` and answers what it asks, until it says that all is in
/// place; returns its summary.
pub async fn send(
    side: &Side,
    sources: Sources,
    inbox: &mut ControlReceiver,
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
    };
    sender.end();
    result
}

fn spawn(
    sender: Arc<Sender>,
    work: impl FnOnce(&Arc<Sender>) -> Result<(), ApiError> + Send + 'static,
) -> JoinHandle<Result<(), ApiError>> {
    tokio::task::spawn_blocking(move || work(&sender))
}
