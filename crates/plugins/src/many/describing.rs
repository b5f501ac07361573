//! Questions: the first source that answers is heard to its end. The next one is asked when one says no, or says nothing for a
//! moment; one that is opened meanwhile is asked, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use towpath_transfer::source::Query;
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source};

use super::SourceCalls;

/// Time that a source has before the next one is asked, too: so many of its round trips, within these bounds.
const PATIENT_TRIPS: u32 = 5;
const LEAST_PATIENCE: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(1);

/// Sources that are opened while others are asked.
pub(super) struct NewSources<'a> {
    shared: &'a SourceCalls,
    known: Vec<u32>,
}

impl<'a> NewSources<'a> {
    /// Those that are opened after those of these numbers.
    pub(super) fn after(shared: &'a SourceCalls, known: Vec<u32>) -> Self {
        Self { shared, known }
    }

    /// The next ones. Cancel-safe.
    async fn next(&mut self) -> Vec<Arc<dyn Source>> {
        loop {
            let found = self.shared.found.notified();
            let new = self.shared.opened_after(&mut self.known);
            if !new.is_empty() {
                return new;
            }
            found.await;
        }
    }
}

/// Asks `sources` in their order, and then those that are opened meanwhile.
pub(super) async fn describe(
    sources: Vec<Arc<dyn Source>>,
    mut new: NewSources<'_>,
    query: Query,
    context: &Context,
    answers: mpsc::Sender<Description>,
) -> Result<(), Outcome> {
    let (mut next, is_answered) = (VecDeque::from(sources), AtomicBool::new(false));
    let (mut asked, mut worst, mut patience) = (FuturesUnordered::new(), None, PATIENCE);
    loop {
        if let Some(source) = next.pop_front() {
            patience = patience_with(source.state().path.round_trip);
            asked.push(ask(source, query.clone(), context, &answers, &is_answered));
        }
        let patience = async {
            match next.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(patience).await,
            }
        };
        let said = tokio::select! {
            biased;
            said = asked.next() => said,
            opened = new.next() => {
                next.extend(opened);
                continue;
            }
            () = patience => continue,
        };
        match said {
            Some(AskedSource::Answered(result)) => return result,
            Some(AskedSource::Outdone) => {}
            Some(AskedSource::Silent(Ok(()))) => return Ok(()),
            Some(AskedSource::Silent(Err(outcome))) => worst = Some(worse(worst, outcome)),
            None if !next.is_empty() => {}
            None => next.extend(opened_before_again(&mut new, worst.as_ref()).await?),
        }
    }
}

/// Time that a source with this round trip has; zero is unknown.
fn patience_with(round_trip: Duration) -> Duration {
    if round_trip.is_zero() { PATIENCE } else { (PATIENT_TRIPS * round_trip).clamp(LEAST_PATIENCE, PATIENCE) }
}

/// Sources that are opened before those that said to ask again later are to be asked. If there are none, all said `worst`.
async fn opened_before_again(
    new: &mut NewSources<'_>,
    worst: Option<&Outcome>,
) -> Result<Vec<Arc<dyn Source>>, Outcome> {
    let Some(Outcome::RetryLater(delay)) = worst else {
        return Err(worst.cloned().unwrap_or(Outcome::NotHere));
    };
    tokio::time::timeout(*delay, new.next()).await.map_err(|_| Outcome::RetryLater(Duration::ZERO))
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

/// What became of the question that one source was asked.
enum AskedSource {
    /// It answered first, to its end.
    Answered(Result<(), Outcome>),
    /// Another one answered before it.
    Outdone,
    /// It ended without any answer.
    Silent(Result<(), Outcome>),
}

/// Asks one source, and hands on what it answers if nobody has answered before it.
async fn ask(
    source: Arc<dyn Source>,
    query: Query,
    context: &Context,
    answers: &mpsc::Sender<Description>,
    is_answered: &AtomicBool,
) -> AskedSource {
    let (sender, mut inbox) = mpsc::channel(4);
    let mut call = source.describe(query, context, sender);
    let (first, call) = tokio::select! {
        biased;
        Some(first) = inbox.recv() => (first, call),
        result = &mut call => match inbox.recv().await {
            Some(first) => (first, Box::pin(std::future::ready(result)) as BoxFuture<'_, _>),
            None => return AskedSource::Silent(result),
        },
    };
    match is_answered.swap(true, Ordering::Relaxed) {
        true => AskedSource::Outdone,
        false => AskedSource::Answered(forward(first, inbox, call, answers).await),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy by two links stood still for a second where the link was cut that had been asked what a file is.
    #[test]
    fn who_is_near_and_says_nothing_has_less_time() {
        for (round_trip, expected) in [(0, 1000), (1, 150), (40, 200), (100, 500), (400, 1000)] {
            let patience = patience_with(Duration::from_millis(round_trip));
            assert_eq!(patience, Duration::from_millis(expected), "{round_trip} ms");
        }
    }
}
