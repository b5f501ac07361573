//! Rules of puts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_content::pieces;
use towpath_content::tree::Time;

use super::*;
use crate::seam::{ObjectKind, wait_change};

pub(super) fn checks<S: Store>() -> Vec<(&'static str, StoreCheck<S>)> {
    vec![
        ("an empty store has nothing", empty),
        ("a commit completes the object and binds its live name, whatever its size", commit),
        ("what the put said is told on", about),
        ("any way of cutting the data gives the same object", cuts),
        ("pieces can be read as soon as they are whole", live_reading),
        ("the first piece waits until it is known not to be the whole", first_piece),
        ("starting a name again begins a new generation", generations),
        ("an abandoned put leaves no bytes and says so", abort),
        ("data for a put that is not open is refused", not_open),
        ("a name that is bound stays bound, and committing again says to what", bound),
        ("a second put of the same bytes gives the same object", twice),
        ("a change wakes those who wait, and the timeout ends a wait", waiting),
        ("puts at the same time do not disturb each other", concurrent),
        ("listeners hear of each object once", listeners),
    ]
}

fn empty<S: Store>(store: &S) -> CheckResult {
    for oid in [live(1), Oid::of(b"")] {
        expect_gone(store, &oid);
        assert!(!store.is_zero(&oid, 0));
    }
    assert!(matches!(store.get_chunk(&[1; 32]), Err(StoreError::NotHere)));
    Ok(())
}

fn commit<S: Store>(store: &S) -> CheckResult {
    let sizes = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5];
    for (number, len) in sizes.into_iter().enumerate() {
        let (live, data) = (live(number as u8), pattern(len, 0));
        let oid = put(store, &live, &data)?;
        expect_complete(store, &oid, &data)?;
        assert_eq!(store.have(&live)?, whole(State::Bound(oid), layout_of(len)));
        expect_content(store, &live, &data)?;
    }
    Ok(())
}

fn about<S: Store>(store: &S) -> CheckResult {
    let modified = Some(Time { seconds: -5, nanos: 999_999_999 });
    let about = About { kind: ObjectKind::Tree, name: vec![b'n', 0xff], mode: Some(0o755), modified };
    store.put_init(&live(1), &about)?;
    assert_eq!(store.have(&live(1))?.about, about);
    let oid = store.put_commit(&live(1))?;
    assert_eq!(store.have(&oid)?.about, about);
    assert_eq!(store.have(&live(1))?.about, about);
    Ok(())
}

fn cuts<S: Store>(store: &S) -> CheckResult {
    let data = pattern(2 * PIECE + 3, 1);
    for (number, step) in [PIECE / 2, PIECE - 1, PIECE + 1, 100_000].into_iter().enumerate() {
        let live = live(number as u8);
        store.put_init(&live, &About::default())?;
        store.put_data(&live, &[])?;
        data.chunks(step).try_for_each(|part| store.put_data(&live, part))?;
        assert_eq!(store.put_commit(&live)?, Oid::of(&data), "in steps of {step}");
    }
    expect_complete(store, &Oid::of(&data), &data)
}

fn live_reading<S: Store>(store: &S) -> CheckResult {
    let (live, data) = (live(1), pattern(4 * PIECE + 9, 2));
    store.put_init(&live, &About::default())?;
    // Each step ends some bytes into the next piece.
    let mut rest = &data[..];
    for count in 1..=4 {
        let (part, later) = rest.split_at(if count == 1 { PIECE + 5 } else { PIECE });
        rest = later;
        store.put_data(&live, part)?;
        expect_live(store, &live, &data, count)?;
    }
    store.put_data(&live, rest)?;
    let values = expect_live(store, &live, &data, 4)?;
    let oid = store.put_commit(&live)?;
    let layout = layout_of(data.len());
    let last = layout.value(4, piece(&data, &layout, 4));
    assert_eq!(pieces::oid_of(&[&values[..], &[last]].concat()), oid, "the values lead to the OID");
    Ok(())
}

/// Checks that `count` pieces can be had under a live name, and returns their values.
fn expect_live<S: Store>(
    store: &S,
    live: &Oid,
    data: &[u8],
    count: u64,
) -> Result<Vec<pieces::Value>, StoreError> {
    let (found, mut buf) = (store.have(live)?, Vec::new());
    assert!(matches!(found.state, State::Live { .. }));
    assert_eq!((found.pieces, found.layout.size()), (one(0..count), count * PIECE as u64));
    for index in 0..count {
        buf.clear();
        store.read_piece(live, index, &mut buf)?;
        assert_eq!(&buf[..], piece(data, &layout_of(data.len()), index));
    }
    assert!(matches!(store.read_piece(live, count, &mut buf), Err(StoreError::NotYet)));
    assert!(matches!(store.get_descriptors(live, 0..count + 1), Err(StoreError::NotYet)));
    match store.get_descriptors(live, 0..count)? {
        Descriptors::Values(values) => Ok(values),
        Descriptors::Proof(_) => panic!("a live object is described by values"),
    }
}

fn first_piece<S: Store>(store: &S) -> CheckResult {
    let (live, data) = (live(1), pattern(PIECE, 3));
    store.put_init(&live, &About::default())?;
    store.put_data(&live, &data)?;
    assert_eq!(store.have(&live)?.pieces, []);
    assert!(matches!(store.read_piece(&live, 0, &mut Vec::new()), Err(StoreError::NotYet)));
    assert!(matches!(store.get_descriptors(&live, 0..1), Err(StoreError::NotYet)));
    store.put_data(&live, b"x")?;
    assert_eq!(store.have(&live)?.pieces, one(0..1));
    Ok(())
}

fn generations<S: Store>(store: &S) -> CheckResult {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..5 {
        store.put_init(&live(1), &About::default())?;
        let State::Live { generation } = store.have(&live(1))?.state else {
            panic!("an open put is live");
        };
        assert!(seen.insert(generation));
        store.put_data(&live(1), &pattern(2 * PIECE, 1))?;
    }
    store.put_init(&live(1), &About::default())?;
    assert_eq!(store.have(&live(1))?.pieces, [], "nothing is left of the one before");
    store.put_data(&live(1), b"last")?;
    assert_eq!(store.put_commit(&live(1))?, Oid::of(b"last"));
    Ok(())
}

fn abort<S: Store>(store: &S) -> CheckResult {
    store.put_init(&live(1), &About::default())?;
    store.put_data(&live(1), &pattern(3 * PIECE, 1))?;
    let before = store.version(&live(1));
    store.put_abort(&live(1));
    assert_ne!(store.version(&live(1)), before);
    let found = store.have(&live(1))?;
    assert_eq!((found.state, found.pieces), (State::Abandoned, vec![]));
    assert!(matches!(store.read_piece(&live(1), 0, &mut Vec::new()), Err(StoreError::NotHere)));
    assert!(is_refused(&store.put_data(&live(1), b"more")));
    store.put_abort(&live(1));
    store.put_abort(&live(2));
    let oid = put(store, &live(1), b"again")?;
    expect_complete(store, &oid, b"again")
}

fn not_open<S: Store>(store: &S) -> CheckResult {
    assert!(is_refused(&store.put_data(&live(1), b"x")));
    assert!(is_refused(&store.put_commit(&live(1))));
    assert!(is_refused(&store.put_init(&Oid::of(b"x"), &About::default())), "a name that is a hash");
    Ok(())
}

fn bound<S: Store>(store: &S) -> CheckResult {
    let oid = put(store, &live(1), b"bytes")?;
    assert_eq!(store.put_commit(&live(1))?, oid);
    assert!(is_refused(&store.put_init(&live(1), &About::default())));
    assert!(is_refused(&store.put_data(&live(1), b"more")));
    store.put_abort(&live(1));
    assert_eq!(store.have(&live(1))?.state, State::Bound(oid));
    Ok(())
}

fn twice<S: Store>(store: &S) -> CheckResult {
    let data = pattern(PIECE + 1, 1);
    assert_eq!(put(store, &live(1), &data)?, put(store, &live(2), &data)?);
    expect_complete(store, &Oid::of(&data), &data)?;
    expect_content(store, &live(2), &data)
}

fn waiting<S: Store>(store: &S) -> CheckResult {
    store.put_init(&live(1), &About::default())?;
    let seen = store.version(&live(1));
    assert_eq!(wait_change(store, &live(1), seen, Duration::from_millis(5)), seen);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_change(store, &live(1), seen, Duration::from_secs(60)));
        let put = store.put_data(&live(1), &pattern(PIECE + 1, 1));
        assert!(waiter.join().is_ok_and(|version| version != seen));
        put
    })?;
    assert!(start.elapsed() < Duration::from_secs(30));
    let seen = store.version(&live(1));
    let oid = store.put_commit(&live(1))?;
    assert_ne!(wait_change(store, &live(1), seen, Duration::from_secs(60)), seen);
    let seen = store.version(&oid);
    assert_eq!(wait_change(store, &oid, seen, Duration::ZERO), seen);
    Ok(())
}

fn concurrent<S: Store>(store: &S) -> CheckResult {
    let put_one = |number: u8| -> CheckResult {
        let (live, data) = (live(number), pattern(3 * PIECE + usize::from(number), number / 2));
        store.put_init(&live, &About::default())?;
        data.chunks(70_000).try_for_each(|part| store.put_data(&live, part))?;
        let oid = store.put_commit(&live)?;
        expect_complete(store, &oid, &data)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || put_one(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a put that panicked was reported"))
    })
}

fn listeners<S: Store>(store: &S) -> CheckResult {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    store.register_push(Box::new(move |oid| {
        assert!(!oid.is_live());
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    put(store, &live(1), b"one")?;
    put(store, &live(2), b"one")?;
    store.put_init(&live(3), &About::default())?;
    store.put_abort(&live(3));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    put(store, &live(4), b"two")?;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    Ok(())
}
