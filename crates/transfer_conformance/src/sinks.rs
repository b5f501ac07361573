//! The sink that checks deliver into, and the rules about it.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::*;
use towpath_transfer::object::ObjectInFlight;
use towpath_transfer::source::{Backlog, BoxFuture, Sink};
use towpath_transfer::target::Target;
use towpath_transfer::want::{Delivery, Outcome, Proof};

/// Bytes that may wait to be taken at once while the sink blocks, in pieces.
const MOST_WAITING: usize = 16;
/// Delay before what was postponed is asked for again.
const SOON: Duration = Duration::from_millis(25);

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "while the sink blocks, deliveries wait in bounded number, and then all arrive",
            sizes: &[24 * PIECE],
            needs: None,
            check: |bench| Box::pin(blocked(bench)),
        },
        SeamRule {
            words: "nothing is ever delivered under a tag that was not asked for",
            sizes: &[PIECE, 3 * PIECE],
            needs: None,
            check: |bench| Box::pin(own_tags(bench)),
        },
    ]
}

/// Record of what came, and a gate before it.
pub(super) struct SinkRecord {
    got: Mutex<Got>,
    gate: Semaphore,
}

#[derive(Default)]
struct Got {
    waiting: usize,
    most_waiting: usize,
    deliveries: Vec<Delivery>,
    outcomes: HashMap<Tag, Vec<Outcome>>,
}

impl SinkRecord {
    /// A sink that takes everything at once.
    pub(super) fn open() -> Arc<Self> {
        Self::with_room(Semaphore::MAX_PERMITS)
    }

    /// A sink that takes so many deliveries and blocks then.
    pub(super) fn with_room(deliveries: usize) -> Arc<Self> {
        Arc::new(Self { got: Mutex::default(), gate: Semaphore::new(deliveries) })
    }

    fn got(&self) -> MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the rest through.
    pub(super) fn release(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    pub(super) fn deliveries_of(&self, tag: Tag) -> Vec<Delivery> {
        self.got().deliveries.iter().filter(|delivery| delivery.tag == tag).cloned().collect()
    }

    pub(super) fn outcomes_of(&self, tag: Tag) -> Vec<Outcome> {
        self.got().outcomes.get(&tag).cloned().unwrap_or_default()
    }

    /// Number of a want's ends, duplicates of its delivery counted as one.
    pub(super) fn ends(&self, tag: Tag) -> usize {
        self.outcomes_of(tag).len() + usize::from(!self.deliveries_of(tag).is_empty())
    }

    /// Takes the outcome of a want back that is to be asked for again.
    fn take_postponed(&self, tag: Tag) -> bool {
        let mut got = self.got();
        let is_postponed =
            got.outcomes.get(&tag).is_some_and(|all| matches!(all[..], [Outcome::RetryLater(_)]));
        is_postponed && got.outcomes.remove(&tag).is_some()
    }

    /// Every tag that was spoken of.
    pub(super) fn tags(&self) -> HashSet<Tag> {
        let got = self.got();
        got.deliveries.iter().map(|delivery| delivery.tag).chain(got.outcomes.keys().copied()).collect()
    }

    /// Deliveries taken or waiting, and outcomes.
    pub(super) fn count(&self) -> usize {
        let got = self.got();
        got.waiting + got.deliveries.len() + got.outcomes.len()
    }
}

/// Counts a delivery that waits, until it is taken or given up.
struct WaitingSink<'a>(&'a SinkRecord);

impl<'a> WaitingSink<'a> {
    fn new(record: &'a SinkRecord) -> Self {
        let mut got = record.got();
        got.waiting += 1;
        got.most_waiting = got.most_waiting.max(got.waiting);
        Self(record)
    }
}

impl Drop for WaitingSink<'_> {
    fn drop(&mut self) {
        self.0.got().waiting -= 1;
    }
}

impl Sink for SinkRecord {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let waiting = WaitingSink::new(self);
            if let Ok(permit) = self.gate.acquire().await {
                permit.forget();
            }
            drop(waiting);
            self.got().deliveries.push(delivery);
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.got().outcomes.entry(tag).or_default().push(outcome);
    }

    fn backpressure(&self) -> Backlog {
        Backlog { writer_backlog: (self.got().waiting * PIECE) as u64, receive_queue: 0 }
    }
}

/// Takes nothing: checks look at deliveries, not at targets.
struct Nowhere;

impl Target for Nowhere {
    fn begin(&self, _: Option<u64>, _: &towpath_store::About) -> std::io::Result<()> {
        Ok(())
    }
    fn read(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Ok(())
    }
    fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
    fn write_zeros(&self, _: Range<u64>) -> std::io::Result<()> {
        Ok(())
    }
    fn complete(&self, _: &Oid, _: u64, _: Vec<pieces::Value>) -> std::io::Result<()> {
        Ok(())
    }
}

impl Bench {
    /// One call into an open sink.
    pub(super) async fn get(&self, wants: Vec<Want>) -> Arc<SinkRecord> {
        let record = SinkRecord::open();
        self.get_into(wants, &record).await;
        record
    }

    pub(super) async fn get_into(&self, wants: Vec<Want>, record: &Arc<SinkRecord>) {
        self.get_by(&self.subject.context, wants, record).await;
    }

    /// The same by another context. A source that postpones wants is asked for these again.
    pub(super) async fn get_by(&self, context: &Context, wants: Vec<Want>, record: &Arc<SinkRecord>) {
        let mut asked = wants;
        while !asked.is_empty() {
            self.get_once(context, asked.clone(), record).await;
            asked.retain(|want| self.subject.postpones && record.take_postponed(want.tag));
            if !asked.is_empty() {
                tokio::time::sleep(SOON).await;
            }
        }
    }

    /// One call, and nothing asked again.
    pub(super) async fn get_once(&self, context: &Context, wants: Vec<Want>, record: &Arc<SinkRecord>) {
        let sink = Arc::clone(record) as Arc<dyn Sink>;
        self.subject.source.get(wants, context, sink).await;
    }

    /// True if a delivery passes the session's check, with no more known than the OID.
    pub(super) fn passes(&self, want: &Want, delivery: &Delivery) -> bool {
        let (oid, layout, index) = match want.id {
            WantId::Piece { oid, layout, index } => (oid, layout, index),
            WantId::Chunk { hash, len } | WantId::Block { hash, len } => {
                let bytes = delivery.payload.to_bytes(u64::from(len));
                return bytes.len() == len as usize && *Oid::of(&bytes).digest() == hash;
            }
        };
        let object = ObjectInFlight::new(1, oid, Arc::default(), Arc::new(Nowhere));
        object.set_layout(layout);
        let known = if self.subject.proves_nothing { self.proof_of(&oid, index) } else { None };
        let proof = delivery.proof.as_deref().or(known.as_ref());
        let bytes = delivery.payload.to_bytes(layout.len(index));
        object.check_piece(&layout, index, &bytes, proof).is_ok()
    }

    /// The proof of a piece of the fixture's, as others know it.
    fn proof_of(&self, oid: &Oid, index: u64) -> Option<Proof> {
        let data = self.objects.iter().find(|data| Oid::of(data) == *oid)?;
        let run = index..index + 1;
        let nodes = tree_of(data).proof(run.clone()).ok()?;
        Some(Proof { run, nodes: nodes.into() })
    }

    /// Each of `wants` was delivered, and passes the check.
    pub(super) fn expect_all(&self, record: &SinkRecord, wants: &[Want]) {
        for want in wants {
            let (deliveries, outcomes) = (record.deliveries_of(want.tag), record.outcomes_of(want.tag));
            assert!(!deliveries.is_empty(), "{:?} was not delivered: {outcomes:?}", want.id);
            assert!(outcomes.is_empty(), "{:?} was delivered and then {outcomes:?}", want.id);
            for delivery in &deliveries {
                assert!(self.passes(want, delivery), "{:?} does not pass the check", want.id);
                assert!(!delivery.source.kind().is_empty(), "a delivery names its source");
                assert!(delivery.timing.0 <= delivery.timing.1, "a delivery ends after it began");
            }
        }
    }
}

async fn blocked(bench: Bench) {
    let wants = wants(&bench.objects, 1);
    let record = SinkRecord::with_room(2);
    let watching = async {
        let mut seen = 0;
        // Until nothing more comes.
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = record.count();
            if now == seen && now >= 2 {
                break;
            }
            seen = now;
        }
        let most = record.got().most_waiting;
        assert!(most <= MOST_WAITING, "{most} deliveries wait at once for one call");
        assert_eq!(record.got().deliveries.len(), 2, "the sink took no more");
        record.release();
    };
    tokio::join!(bench.get_into(wants.clone(), &record), watching);
    bench.expect_all(&record, &wants);
}

async fn own_tags(bench: Bench) {
    let wants = wants(&bench.objects, 1000);
    let record = bench.get(wants.clone()).await;
    assert_eq!(record.tags(), wants.iter().map(|want| want.tag).collect());
}
