//! The examination that every byte store passes: each rule of the contract as a named check.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! towpath_byte_store::conformance::run(|number| {
//!     Box::new(towpath_byte_store::LocalFiles::new(&folder.path().join(number.to_string())))
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `make` returns a byte store at the place with a number: a fresh one for each number, the same place
//! for the same one. A rule that does not hold panics, and its name is printed before.

use std::io::{self, Read};

use crate::error::ByteStoreError;
use crate::name::{ByteName, PlaceOwner};
use crate::seam::{ByteStore, MAX_RANGE, PutResult};

/// Bytes that are more than one part of any upload.
const MANY: usize = (20 << 20) + 12_345;

type ByteOutcome = Result<(), ByteStoreError>;
type ByteCheck = fn(&dyn ByteStore) -> ByteOutcome;

const CHECKS: [(&str, ByteCheck); 12] = [
    ("what was put is read back, whole and in ranges", comes_back),
    ("no bytes are bytes, too", empty),
    ("many bytes come back", many),
    ("what is there is not put again", once),
    ("what a failure left with another size is replaced", replaced),
    ("a put of too few or too many bytes fails, and nothing is kept", wrong_size),
    ("a put whose bytes can't be read says so, and nothing is kept", unreadable),
    ("ranges outside the bytes, or too long, are refused, and the buffer stays", ranges),
    ("what is not there is told as such, and may be deleted", absent),
    ("what was deleted is gone, and can be put anew", deleted),
    ("names are listed in their order, page by page", listed),
    ("puts of one name at once all end well", at_once),
];

/// Runs all checks, each at a place of its own.
pub fn run(make: impl Fn(usize) -> Box<dyn ByteStore>) {
    for (number, (rule, check)) in CHECKS.into_iter().enumerate() {
        let _named = ByteRuleName(rule);
        let store = make(number);
        expect(store.claim(&PlaceOwner([1; 16]), true));
        expect(check(&*store));
    }
    let _named = ByteRuleName("a place belongs to the first who claims it");
    claimed(&make);
}

fn claimed(make: &dyn Fn(usize) -> Box<dyn ByteStore>) {
    let (first, other) = (PlaceOwner([1; 16]), PlaceOwner([2; 16]));
    let place = CHECKS.len();
    let early = make(place).claim(&first, false);
    assert!(matches!(early, Err(ByteStoreError::Missing { .. })), "{early:?}");
    expect(make(place).claim(&first, true));
    expect(make(place).claim(&first, true));
    expect(make(place).claim(&first, false));
    let taken = make(place).claim(&other, true);
    assert!(matches!(taken, Err(ByteStoreError::Taken { .. })), "{taken:?}");
    assert!(expect(make(place).list(None, 10)).is_empty(), "the note is no name");
}

fn expect<T>(result: Result<T, ByteStoreError>) -> T {
    result.unwrap_or_else(|error| panic!("unexpected error: {error:?}"))
}

/// Names the rule that was broken.
struct ByteRuleName(&'static str);

impl Drop for ByteRuleName {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("byte store conformance: this rule does not hold: {}", self.0);
        }
    }
}

/// Bytes that differ from place to place. Their name need not be their hash here.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

const fn name(first: u8, last: u8) -> ByteName {
    let mut name = [first; 32];
    name[31] = last;
    ByteName(name)
}

fn put(store: &dyn ByteStore, name: ByteName, bytes: &[u8]) -> Result<PutResult, ByteStoreError> {
    store.put(&name, &mut &bytes[..], bytes.len() as u64)
}

fn get(
    store: &dyn ByteStore,
    name: ByteName,
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>, ByteStoreError> {
    let mut buf = b"before".to_vec();
    let result = store.get_range(&name, range, &mut buf);
    let rest = buf.split_off(6);
    assert_eq!(buf, b"before", "what was in the buffer stays");
    assert!(result.is_ok() || rest.is_empty(), "nothing comes with an error");
    result.map(|()| rest)
}

fn comes_back(store: &dyn ByteStore) -> ByteOutcome {
    let bytes = pattern(100_000);
    assert_eq!(put(store, name(1, 1), &bytes)?, PutResult::New);
    assert_eq!(store.size(&name(1, 1))?, 100_000);
    for range in [0..100_000, 0..1, 99_999..100_000, 1000..70_000] {
        assert_eq!(get(store, name(1, 1), range.clone())?, bytes[range.start as usize..range.end as usize]);
    }
    assert_eq!(get(store, name(1, 1), 5..5)?, b"");
    Ok(())
}

fn empty(store: &dyn ByteStore) -> ByteOutcome {
    assert_eq!(put(store, name(1, 1), b"")?, PutResult::New);
    assert_eq!(store.size(&name(1, 1))?, 0);
    assert_eq!(get(store, name(1, 1), 0..0)?, b"");
    Ok(())
}

fn many(store: &dyn ByteStore) -> ByteOutcome {
    let bytes = pattern(MANY);
    assert_eq!(put(store, name(1, 1), &bytes)?, PutResult::New);
    assert_eq!(store.size(&name(1, 1))?, MANY as u64);
    let mut read = get(store, name(1, 1), 0..MAX_RANGE)?;
    read.extend(get(store, name(1, 1), MAX_RANGE..MANY as u64)?);
    assert!(read == bytes, "the bytes are others");
    Ok(())
}

fn once(store: &dyn ByteStore) -> ByteOutcome {
    assert_eq!(put(store, name(1, 1), b"bytes")?, PutResult::New);
    assert_eq!(put(store, name(1, 1), b"bytes")?, PutResult::WasHere);
    assert_eq!(get(store, name(1, 1), 0..5)?, b"bytes");
    Ok(())
}

fn replaced(store: &dyn ByteStore) -> ByteOutcome {
    put(store, name(1, 1), b"byt")?;
    assert_eq!(put(store, name(1, 1), b"bytes")?, PutResult::New);
    assert_eq!(get(store, name(1, 1), 0..5)?, b"bytes");
    Ok(())
}

fn wrong_size(store: &dyn ByteStore) -> ByteOutcome {
    for len in [100, MANY] {
        let bytes = pattern(len);
        for size in [len as u64 - 1, len as u64 + 1] {
            assert!(store.put(&name(1, 1), &mut &bytes[..], size).is_err(), "{size} of {len}");
            assert!(matches!(store.size(&name(1, 1)), Err(ByteStoreError::NotHere)), "{size} of {len}");
        }
    }
    Ok(())
}

fn unreadable(store: &dyn ByteStore) -> ByteOutcome {
    for good in [10, MANY] {
        let bytes = pattern(good);
        let mut broken = (&bytes[..]).chain(BrokenInput);
        let result = store.put(&name(1, 1), &mut broken, good as u64 + 100);
        assert!(matches!(result, Err(ByteStoreError::Input(_))), "{result:?}");
        assert!(matches!(store.size(&name(1, 1)), Err(ByteStoreError::NotHere)));
    }
    Ok(())
}

/// A disk that fails.
struct BrokenInput;

impl Read for BrokenInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk fails"))
    }
}

fn ranges(store: &dyn ByteStore) -> ByteOutcome {
    put(store, name(1, 1), &pattern(1000))?;
    #[expect(clippy::reversed_empty_ranges, reason = "one that ends before it begins")]
    let wrong = [0..1001, 999..1001, 1000..1001, 5000..5001, 0..u64::MAX, 0..MAX_RANGE + 1, 9..8];
    for range in wrong {
        let result = get(store, name(1, 1), range.clone());
        assert!(matches!(result, Err(ByteStoreError::Refused { .. })), "{range:?}: {result:?}");
    }
    Ok(())
}

fn absent(store: &dyn ByteStore) -> ByteOutcome {
    let is_absent = |error| matches!(error, Err(ByteStoreError::NotHere));
    assert!(is_absent(store.size(&name(1, 1)).map(drop)));
    assert!(is_absent(get(store, name(1, 1), 0..10).map(drop)));
    store.delete(&name(1, 1))
}

fn deleted(store: &dyn ByteStore) -> ByteOutcome {
    put(store, name(1, 1), b"bytes")?;
    put(store, name(1, 2), b"others")?;
    store.delete(&name(1, 1))?;
    assert!(matches!(store.size(&name(1, 1)), Err(ByteStoreError::NotHere)));
    assert_eq!(get(store, name(1, 2), 0..6)?, b"others");
    assert_eq!(put(store, name(1, 1), b"bytes")?, PutResult::New);
    Ok(())
}

fn listed(store: &dyn ByteStore) -> ByteOutcome {
    assert!(store.list(None, 10)?.is_empty());
    let mut names: Vec<_> = (0..7).flat_map(|first| [name(first * 40, 9), name(first * 40, 1)]).collect();
    for (size, name) in names.iter().enumerate() {
        put(store, *name, &pattern(size))?;
    }
    let size_of = |name: &ByteName| names.iter().position(|one| one == name).map(|size| size as u64);
    let (mut found, mut after) = (Vec::new(), None);
    // Each page has something, so there are no more of them than names.
    for _ in 0..=names.len() {
        let page = store.list(after.as_ref(), 4)?;
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = Some(last.name);
        assert!(page.iter().all(|one| size_of(&one.name) == Some(one.size)), "{page:?}");
        found.extend(page.into_iter().map(|one| one.name));
    }
    names.sort_unstable();
    assert_eq!(found, names);
    assert_eq!(store.list(None, usize::MAX)?.len(), names.len());
    Ok(())
}

fn at_once(store: &dyn ByteStore) -> ByteOutcome {
    let bytes = pattern(300_000);
    std::thread::scope(|scope| {
        let puts: Vec<_> = (0..8).map(|_| scope.spawn(|| put(store, name(1, 1), &bytes))).collect();
        for one in puts {
            expect(one.join().expect("a put panicked"));
        }
    });
    assert_eq!(get(store, name(1, 1), 0..300_000)?, bytes);
    assert_eq!(store.list(None, 10)?.len(), 1);
    Ok(())
}
