//! Questions: the first source that answers is heard to its end. The next one is asked when one says no, or says nothing for a
//! moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use towpath_transfer::source::Query;
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source};

/// Time that a source has before the next one is asked, too.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of the question that one source was asked.
enum FirstAnswer<'a> {
    /// Its first answer, and the rest of its call.
    Answer(Description, mpsc::Receiver<Description>, BoxFuture<'a, Result<(), Outcome>>),
    /// It ended without any.
    End(Result<(), Outcome>),
}

/// Asks `sources` in their order.
pub(super) async fn describe(
    sources: &[Arc<dyn Source>],
    query: Query,
    context: &Context,
    answers: mpsc::Sender<Description>,
) -> Result<(), Outcome> {
    let (mut next, mut asked, mut worst) = (sources.iter(), FuturesUnordered::new(), None);
    loop {
        if let Some(source) = next.next() {
            asked.push(first_answer(source, query.clone(), context));
        }
        let patience = async {
            match next.len() {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(PATIENCE).await,
            }
        };
        let said = tokio::select! {
            said = asked.next() => said,
            () = patience => continue,
        };
        match said {
            Some(FirstAnswer::Answer(first, inbox, call)) => {
                return forward(first, inbox, call, &answers).await;
            }
            Some(FirstAnswer::End(Ok(()))) => return Ok(()),
            Some(FirstAnswer::End(Err(outcome))) => worst = Some(worse(worst, outcome)),
            None if next.len() == 0 => return Err(worst.unwrap_or(Outcome::NotHere)),
            None => {}
        }
    }
}

/// What to say when all said no: that it may come later, if any did; else what the first one said.
fn worse(known: Option<Outcome>, outcome: Outcome) -> Outcome {
    match (known, outcome) {
        (Some(known @ Outcome::RetryLater(_)), _) => known,
        (_, later @ Outcome::RetryLater(_)) => later,
        (Some(known), _) => known,
        (None, outcome) => outcome,
    }
}

async fn first_answer<'a>(
    source: &'a Arc<dyn Source>,
    query: Query,
    context: &'a Context,
) -> FirstAnswer<'a> {
    let (sender, mut inbox) = mpsc::channel(4);
    let mut call = source.describe(query, context, sender);
    tokio::select! {
        biased;
        Some(first) = inbox.recv() => FirstAnswer::Answer(first, inbox, call),
        result = &mut call => match inbox.recv().await {
            Some(first) => FirstAnswer::Answer(first, inbox, Box::pin(std::future::ready(result))),
            None => FirstAnswer::End(result),
        },
    }
}

/// Hands on what one source answers.
async fn forward(
    first: Description,
    mut inbox: mpsc::Receiver<Description>,
    call: BoxFuture<'_, Result<(), Outcome>>,
    answers: &mpsc::Sender<Description>,
) -> Result<(), Outcome> {
    let handing = async {
        let mut answer = Some(first);
        while let Some(one) = answer {
            // Whoever asked may have heard enough: then the source is told by the end of its channel.
            if answers.send(one).await.is_err() {
                inbox.close();
            }
            answer = inbox.recv().await;
        }
    };
    tokio::join!(call, handing).0
}
