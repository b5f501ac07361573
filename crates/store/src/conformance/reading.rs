//! Rules of reading: proofs, runs outside, partial objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_content::pieces::PieceTree;

use super::*;
use crate::seam::{Partial, wait_change};

pub(super) fn checks<S: Store>() -> Vec<(&'static str, StoreCheck<S>)> {
    vec![
        ("every run of a complete object is proved against its OID", proofs),
        ("pieces and runs outside the object are refused", outside),
        ("a partial object is served while it is announced, and grows", partial),
        ("an announcement ends when the object is complete", completed),
    ]
}

fn proofs<S: Store>(store: &S) -> CheckResult {
    let data = pattern(5 * PIECE + 1, 1);
    let (oid, layout) = (put(store, &live(1), &data)?, layout_of(data.len()));
    for start in 0..6 {
        for end in start + 1..=6 {
            let Descriptors::Proof(proof) = store.get_descriptors(&oid, start..end)? else {
                panic!("a complete object is described by proofs");
            };
            let values = pieces::verify(oid.digest(), &layout, start..end, &proof);
            let found = |index| layout.value(index, piece(&data, &layout, index));
            assert_eq!(values, Ok((start..end).map(found).collect()), "{start}..{end}");
        }
    }
    Ok(())
}

fn outside<S: Store>(store: &S) -> CheckResult {
    for (number, len) in [0, PIECE, 2 * PIECE + 1].into_iter().enumerate() {
        let live = live(number as u8);
        let (oid, count) = (put(store, &live, &pattern(len, 1))?, layout_of(len).count());
        for name in [live, oid] {
            for run in [0..0, 0..count + 1, count..count + 1, 0..u64::MAX] {
                assert!(is_refused(&store.get_descriptors(&name, run.clone())), "{run:?} of {count}");
            }
            for index in [count, u64::MAX] {
                assert!(is_refused(&store.read_piece(&name, index, &mut Vec::new())), "{index} of {count}");
            }
        }
    }
    store.put_init(&live(9), &About::default())?;
    store.put_data(&live(9), &pattern(2 * PIECE, 1))?;
    assert!(is_refused(&store.get_descriptors(&live(9), 0..0)));
    assert!(is_refused(&store.get_descriptors(&live(9), 0..u64::MAX)));
    assert!(is_refused(&store.read_piece(&live(9), u64::MAX, &mut Vec::new())));
    Ok(())
}

/// An object of which the first pieces are here.
pub(super) struct Head {
    data: Vec<u8>,
    tree: PieceTree,
    count: AtomicU64,
}

impl Head {
    pub(super) fn new(data: &[u8], count: u64) -> Arc<Self> {
        let layout = layout_of(data.len());
        let values = (0..layout.count()).map(|index| layout.value(index, piece(data, &layout, index)));
        let tree = PieceTree::new(layout, values.collect()).expect("one value per piece");
        Arc::new(Self { data: data.to_vec(), tree, count: AtomicU64::new(count) })
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

impl Partial for Head {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        (self.tree.layout(), one(0..self.count()))
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let is_known = run.end <= self.count();
        is_known.then(|| self.tree.proof(run).ok()).flatten().ok_or(StoreError::NotYet)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if index >= self.count() {
            return Err(StoreError::NotYet);
        }
        buf.extend_from_slice(piece(&self.data, &self.tree.layout(), index));
        Ok(())
    }
}

fn partial<S: Store>(store: &S) -> CheckResult {
    let data = pattern(4 * PIECE, 1);
    let (oid, head, mut buf) = (Oid::of(&data), Head::new(&data, 1), Vec::new());
    let mut seen = store.version(&oid);
    store.announce(&oid, Some(head.clone()));
    for count in 1..=3 {
        head.count.store(count, Ordering::SeqCst);
        store.announce(&oid, Some(head.clone()));
        let now = wait_change(store, &oid, seen, Duration::from_secs(60));
        assert_ne!(now, seen, "growth wakes those who wait");
        seen = now;
        let found = store.have(&oid)?;
        assert_eq!((found.state, found.pieces), (State::Partial, one(0..count)));
        buf.clear();
        store.read_piece(&oid, count - 1, &mut buf)?;
        assert_eq!(&buf[..], piece(&data, &layout_of(data.len()), count - 1));
        let Descriptors::Proof(proof) = store.get_descriptors(&oid, 0..count)? else {
            panic!("a partial object is described by proofs");
        };
        assert!(pieces::verify(oid.digest(), &found.layout, 0..count, &proof).is_ok());
        assert!(matches!(store.read_piece(&oid, count, &mut buf), Err(StoreError::NotYet)));
    }
    store.announce(&oid, None);
    assert_ne!(store.version(&oid), seen);
    expect_gone(store, &oid);
    Ok(())
}

fn completed<S: Store>(store: &S) -> CheckResult {
    let data = pattern(2 * PIECE, 1);
    let oid = Oid::of(&data);
    store.announce(&oid, Some(Head::new(&data, 1)));
    put(store, &live(1), &data)?;
    expect_complete(store, &oid, &data)?;
    store.announce(&oid, None);
    expect_complete(store, &oid, &data)
}
