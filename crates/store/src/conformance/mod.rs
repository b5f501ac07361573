//! The examination that every store passes: each rule of the contract as a named check.
//!
//! ```
//! towpath_store::conformance::run(towpath_store::MemoryStore::new);
//! ```
//!
//! A check gets a fresh, empty store. One that fails panics; the rule's name is printed before.

mod chunking;
mod keeping;
mod putting;
mod reading;

use std::ops::Range;

use towpath_content::Oid;
use towpath_content::pieces::{self, Layout};

use crate::error::StoreError;
use crate::leases::{Chunks, Leases};
use crate::seam::{About, Availability, Descriptors, State, Store};

/// Bytes of a piece of the objects that the checks put.
const PIECE: usize = 1 << pieces::MIN_LOG2;

/// Result of a check; an error fails it.
type CheckResult = Result<(), StoreError>;
type StoreCheck<S> = fn(&S) -> CheckResult;

/// Runs all checks of a [`Store`], each on one that `make` returns.
pub fn run<S: Store>(make: impl Fn() -> S) {
    examine(make, [putting::checks(), reading::checks(), chunking::checks()].concat());
}

/// Runs all checks of [`Leases`], beside those of a [`Store`].
pub fn run_leases<S: Leases>(make: impl Fn() -> S) {
    examine(make, keeping::leases());
}

/// Runs all checks of [`Chunks`], beside those of a [`Store`].
pub fn run_chunks<S: Chunks>(make: impl Fn() -> S) {
    examine(make, keeping::chunks());
}

fn examine<S>(make: impl Fn() -> S, checks: Vec<(&'static str, StoreCheck<S>)>) {
    for (rule, check) in checks {
        let _guard = RuleName(rule);
        if let Err(error) = check(&make()) {
            panic!("unexpected error: {error:?}");
        }
    }
}

/// Names the rule that was broken.
struct RuleName(&'static str);

impl Drop for RuleName {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("store conformance: this rule does not hold: {}", self.0);
        }
    }
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8 ^ seed).collect()
}

const fn live(number: u8) -> Oid {
    Oid::Live([number; 32])
}

fn put(store: &impl Store, live: &Oid, data: &[u8]) -> Result<Oid, StoreError> {
    store.put_init(live, &About::default())?;
    store.put_data(live, data)?;
    store.put_commit(live)
}

/// A list of one run of pieces.
fn one(run: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(run).collect()
}

fn whole(state: State, layout: Layout) -> Availability {
    Availability { state, layout, pieces: one(0..layout.count()), spans: Vec::new(), about: About::default() }
}

/// The layout of an object of `len` bytes.
fn layout_of(len: usize) -> Layout {
    Layout::of(len as u64).expect("checks put small objects")
}

fn piece<'a>(data: &'a [u8], layout: &Layout, index: u64) -> &'a [u8] {
    let range = layout.range(index);
    &data[range.start as usize..range.end as usize]
}

/// Checks that the object can be had whole under `oid`, each piece proved on its own.
fn expect_content(store: &impl Store, oid: &Oid, data: &[u8]) -> CheckResult {
    let (layout, root, front) = (layout_of(data.len()), Oid::of(data), pattern(7, 7));
    for index in 0..layout.count() {
        let mut buf = front.clone();
        store.read_piece(oid, index, &mut buf)?;
        assert!(buf.starts_with(&front), "what the buffer held stays");
        let buf = &buf[front.len()..];
        assert_eq!(buf, piece(data, &layout, index), "piece {index} of {oid}");
        let Descriptors::Proof(proof) = store.get_descriptors(oid, index..index + 1)? else {
            panic!("a complete object is described by proofs");
        };
        let values = pieces::verify(root.digest(), &layout, index..index + 1, &proof);
        assert_eq!(values, Ok(vec![layout.value(index, buf)]), "proof of piece {index} of {oid}");
    }
    Ok(())
}

fn expect_complete(store: &impl Store, oid: &Oid, data: &[u8]) -> CheckResult {
    assert_eq!(*oid, Oid::of(data));
    assert_eq!(store.have(oid)?, whole(State::Complete, layout_of(data.len())));
    expect_content(store, oid, data)
}

fn expect_gone(store: &impl Store, oid: &Oid) {
    assert!(matches!(store.have(oid), Err(StoreError::NotHere)), "{oid} should not be here");
    let read = store.read_piece(oid, 0, &mut Vec::new());
    assert!(matches!(read, Err(StoreError::NotHere)), "{read:?}");
    let described = store.get_descriptors(oid, 0..1);
    assert!(matches!(described, Err(StoreError::NotHere)), "{described:?}");
}

fn is_refused<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Refused { .. }))
}
