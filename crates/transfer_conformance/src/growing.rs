//! Rules of live objects, which are asked for while they grow.

use tokio::sync::mpsc;
use towpath_content::live::Statement;
use towpath_content::pieces::{MIN_LOG2, inner_value};

use super::telling::add_runs;
use super::*;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::source::{Description, Query};

/// Pieces of the object at the end.
const PIECES: usize = 7;
/// Bytes behind the last whole one.
const REST: usize = 9;
/// Delay before a piece is asked for again that was not there.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "a question that follows a live object is answered as it grows, until it is bound",
            sizes: &[1],
            needs: Some(Ability::Grow),
            check: |bench| Box::pin(followed(bench)),
        },
        SeamRule {
            words: "pieces of a live object come while it grows, as they are",
            sizes: &[1],
            needs: Some(Ability::Grow),
            check: |bench| Box::pin(pieces_come(bench)),
        },
        SeamRule {
            words: "what can be had of a live object is told as it grows, and never more than there is",
            sizes: &[1],
            needs: Some(Ability::TellGrowth),
            check: |bench| Box::pin(growth(bench)),
        },
    ]
}

impl Bench {
    fn object(&self) -> &dyn GrowingFixture {
        self.subject.growing.as_deref().expect("rules of live objects are for those who have some")
    }
}

/// The content of the object, and where it was parted.
fn parts() -> (Vec<u8>, usize) {
    (pattern(PIECES * PIECE + REST, 42), 3 * PIECE)
}

async fn followed(bench: Bench) {
    let object = bench.object();
    let (data, middle) = parts();
    object.append(&data[..middle]);
    let (answers, mut inbox) = mpsc::channel(1);
    let query = Query { proofs: Some(0..u64::MAX), follow: true, ..Query::about(object.oid()) };
    let asking = bench.subject.source.describe(query, &bench.subject.context, answers);
    let listening = async {
        let first = inbox.recv().await;
        let is_live = matches!(first, Some(Description::Object { layout: None, .. }));
        assert!(is_live, "the first answer is {first:?}");
        let mut stated = 0;
        let (mut rest, mut is_bound) = (Some(&data[middle..]), false);
        while let Some(answer) = inbox.recv().await {
            match expect_statement(&bench, answer) {
                Statement::Values { first, values, .. } => {
                    assert!(first <= stated, "values from {first} on, and none of {stated}");
                    expect_values(&data, first, &values);
                    stated = stated.max(first + values.len() as u64);
                }
                Statement::Bound { content, size, .. } => {
                    assert_eq!((content, size), (Oid::of(&data), data.len() as u64));
                    assert!(rest.is_none() && !is_bound, "bound once, and not before its end");
                    is_bound = true;
                }
            }
            if stated > 0
                && let Some(rest) = rest.take()
            {
                object.append(rest);
                object.complete();
            }
        }
        assert!(is_bound, "the answers end before it is bound");
    };
    let (result, ()) = tokio::join!(asking, listening);
    assert_eq!(result, Ok(()));
}

/// The statement that an answer is, signed by the ticket's node if the context names one.
fn expect_statement(bench: &Bench, answer: Description) -> Statement {
    let Description::Live { statement, signature } = answer else { panic!("{answer:?} was not asked for") };
    assert_eq!(*statement.object(), bench.object().oid());
    if let Some(node) = bench.subject.context.node {
        assert!(node.verify(&statement.message(), &signature), "not signed by the ticket's node");
    }
    statement
}

fn expect_values(data: &[u8], first: u64, values: &[pieces::Value]) {
    for (value, index) in values.iter().zip(first..) {
        let begin = index as usize * PIECE;
        let bytes = &data[begin..data.len().min(begin + PIECE)];
        assert_eq!(*value, inner_value(index, MIN_LOG2, bytes), "value of piece {index}");
    }
}

async fn pieces_come(bench: Bench) {
    let object = bench.object();
    let (data, middle) = parts();
    object.append(&data[..middle]);
    let layout = Layout::live(pieces::MAX_LIVE_SIZE).expect("the longest that there is");
    let id = |index| WantId::Piece { oid: object.oid(), layout, index };
    let mut rest = Some(&data[middle..]);
    let mut tag = 0;
    // The last whole piece of what is there may wait for what follows.
    for index in [0, 1, 4] {
        if index == 4
            && let Some(rest) = rest.take()
        {
            object.append(rest);
        }
        let payload = loop {
            tag += 1;
            let record = bench.get(vec![Want { id: id(index), ..want(tag, &data, index) }]).await;
            assert_eq!(record.ends(tag), 1, "piece {index} ended so: {:?}", record.outcomes_of(tag));
            match record.deliveries_of(tag).pop() {
                Some(delivery) => break delivery.payload,
                None => tokio::time::sleep(AGAIN).await,
            }
        };
        let bytes = payload.to_bytes(PIECE as u64);
        assert!(bytes == &data[index as usize * PIECE..][..PIECE], "piece {index} has other bytes");
    }
}

async fn growth(bench: Bench) {
    let object = bench.object();
    let (data, middle) = parts();
    object.append(&data[..middle]);
    let (ranges, mut inbox) = mpsc::channel(1);
    let telling = bench.subject.source.have(object.oid(), &bench.subject.context, ranges);
    let listening = async {
        let (mut rest, mut known) = (Some(&data[middle..]), Intervals::default());
        while known.prefix() < (PIECES * PIECE) as u64 {
            let told = inbox.recv().await.expect("it tells on while the object grows");
            let there = if rest.is_some() { middle } else { data.len() };
            add_runs(&mut known, told, there as u64);
            if known.prefix() > 0
                && let Some(rest) = rest.take()
            {
                object.append(rest);
                object.complete();
            }
        }
        drop(inbox);
    };
    tokio::join!(telling, listening);
}
