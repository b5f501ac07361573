//! Sources of which one has nearly all bytes of an object and hardly a whole piece, as a receiver has whose older version changed all
//! over (`papers/dsync.txt` §7.2.3): pieces are put together of what each has.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::watch;
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::Identity;
use towpath_plugins::{HintedNodes, Many};
use towpath_transfer::{Context, Session, Single, Source, SourceId};

use crate::mannered::{Manner, Mannered};
use crate::support::*;

const MIB: usize = 1 << 20;

/// What is left of `len` bytes of which one percent changed, in places of 600 bytes.
fn scattered(len: u64) -> impl Iterator<Item = Range<u64>> {
    (0..len).step_by(60_000).map(move |begin| begin + 600..(begin + 60_000).min(len))
}

/// Fetches `data` of a sender and of a holder that a hint names. Returns the bytes that each brought.
async fn fetched(data: &[u8], sender: &Arc<Mannered>, holder: &Arc<Mannered>) -> [u64; 2] {
    let (oid, found) = (Oid::of(data), Arc::clone(holder));
    let peer = move |_: NodeId, _| -> Vec<Arc<dyn Source>> { vec![Arc::clone(&found) as _] };
    let node = Identity::generate().unwrap().node_id();
    let hint = Hint::new(format!("tow://{node}@127.0.0.1:1"), 0, 1).unwrap();
    let hints = watch::channel(vec![hint]).1;
    let many = Many::new(vec![Arc::clone(sender) as _], vec![HintedNodes::new(Box::new(peer), None)]);
    let context = Context { root: oid, node: None, secret: None, hints };
    let session = Session::start(Single::root(Arc::new(many)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    session.fetch(request(oid, None, &target)).await.unwrap();
    target.expect(data);
    let by_source = session.progress().snapshot().by_source;
    let brought = [sender.name, holder.name].map(|name| by_source.get(&SourceId::other(name, None)).copied());
    brought.map(Option::unwrap_or_default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_all_but_scattered_bytes_brings_nearly_all() {
    let data = pattern(16 * MIB, 3);
    let len = data.len() as u64;
    let sender = Mannered::with("sender", &data, 1 << 20, Manner::Honest, once(0..len));
    let holder = Mannered::with("holder", &data, 32 << 20, Manner::Honest, scattered(len));
    let brought = fetched(&data, &sender, &holder).await;
    assert!(brought[1] * 10 >= len * 8, "{brought:?}");
    assert!(!*holder.blamed.borrow());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_lies_in_its_parts_is_found_out() {
    let data = pattern(8 * MIB, 4);
    let len = data.len() as u64;
    let sender = Mannered::with("sender", &data, 8 << 20, Manner::Honest, once(0..len));
    let liar = Mannered::with("liar", &data, 32 << 20, Manner::Lies, scattered(len));
    let brought = fetched(&data, &sender, &liar).await;
    assert_eq!(brought, [len, 0]);
    assert!(*liar.blamed.borrow());
}
