//! Rules of keeping: chunks and leases.

use towpath_content::ticket::{BoundSecret, Secret, Terms};

use super::*;
use crate::leases::{Holder, Lease};
use crate::seam::ObjectKind;

pub(super) fn chunks<S: Chunks>() -> Vec<(&'static str, StoreCheck<S>)> {
    vec![
        ("a chunk stays until its last put is released", counted_chunks),
        ("bytes that do not have the hash are not taken for the chunk", wrong_chunk),
        ("chunks put and released at the same time stay counted", busy_chunks),
    ]
}

pub(super) fn leases<S: Leases>() -> Vec<(&'static str, StoreCheck<S>)> {
    vec![
        ("leases come back as they were, oldest first, one a name", kept),
        ("a lease learns what its live name was bound to", learning),
        ("a lease that is given back takes its live name along and leaves the object as cache", done),
        ("leases of one object are given back one by one", shared),
        ("the end of a session ends its leases and no others", sessions),
        ("a lease on an open put can be given back", open),
        ("an empty store holds nothing", none),
    ]
}

fn none<S: Leases>(store: &S) -> CheckResult {
    for oid in [live(1), Oid::of(b"")] {
        assert!(!store.done(&oid)?);
    }
    assert_eq!(store.leases()?, []);
    Ok(())
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

fn counted_chunks<S: Chunks>(store: &S) -> CheckResult {
    for bytes in [&b"chunk"[..], b"", &pattern(PIECE, 1)] {
        let hash = hash(bytes);
        store.put_chunk(&hash, bytes)?;
        store.put_chunk(&hash, bytes)?;
        assert_eq!(store.get_chunk(&hash)?, bytes);
        store.release_chunk(&hash)?;
        assert_eq!(store.get_chunk(&hash)?, bytes);
        store.release_chunk(&hash)?;
        assert!(matches!(store.get_chunk(&hash), Err(StoreError::NotHere)));
        assert!(matches!(store.release_chunk(&hash), Err(StoreError::NotHere)));
        store.put_chunk(&hash, bytes)?;
        assert_eq!(store.get_chunk(&hash)?, bytes);
    }
    Ok(())
}

fn wrong_chunk<S: Chunks>(store: &S) -> CheckResult {
    let hash = hash(b"right");
    assert!(is_refused(&store.put_chunk(&hash, b"wrong")));
    assert!(matches!(store.get_chunk(&hash), Err(StoreError::NotHere)));
    store.put_chunk(&hash, b"right")?;
    assert!(is_refused(&store.put_chunk(&hash, b"wrong")));
    assert_eq!(store.get_chunk(&hash)?, b"right");
    Ok(())
}

fn busy_chunks<S: Chunks>(store: &S) -> CheckResult {
    let (bytes, hash) = (b"shared", hash(b"shared"));
    let work = || -> CheckResult {
        for _ in 0..8 {
            store.put_chunk(&hash, bytes)?;
            assert_eq!(store.get_chunk(&hash)?, bytes);
            store.release_chunk(&hash)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a panic was reported"))
    })?;
    assert!(matches!(store.get_chunk(&hash), Err(StoreError::NotHere)));
    Ok(())
}

fn lease(oid: Oid, created: u64) -> Lease {
    let about = About { name: b"name".to_vec(), ..About::default() };
    Lease {
        oid,
        content: None,
        size: None,
        secret: Secret([created as u8; 16]).into(),
        path: None,
        about,
        created,
        holder: Holder::Pinned,
    }
}

fn kept<S: Leases>(store: &S) -> CheckResult {
    let full = Lease {
        content: Some(Oid::of(b"tree")),
        size: Some(1 << 40),
        path: Some("/some/where".into()),
        ..lease(live(1), 20)
    };
    let terms = Terms { expires: Some(1_800_000_000), no_swarm: true };
    let secret = BoundSecret { secret: Secret([3; 16]), terms };
    let (early, late) = (lease(Oid::of(b"x"), 10), Lease { secret, ..lease(live(2), 30) });
    for lease in [&late, &full, &early] {
        store.lease(lease)?;
    }
    assert_eq!(store.leases()?, [early.clone(), full.clone(), late.clone()]);
    let moved = Lease { secret: Secret([99; 16]).into(), created: 40, ..early };
    store.lease(&moved)?;
    assert_eq!(store.leases()?, [full, late, moved]);
    Ok(())
}

fn learning<S: Leases>(store: &S) -> CheckResult {
    let mut tree = lease(live(2), 2);
    tree.about.kind = ObjectKind::Tree;
    store.lease(&lease(live(1), 1))?;
    store.lease(&tree)?;
    let (blob, described) = (put(store, &live(1), b"12345")?, put(store, &live(2), b"tree")?);
    put(store, &live(3), b"123")?;
    store.lease(&lease(live(3), 3))?;
    let learnt: Vec<_> = store.leases()?.iter().map(|lease| (lease.content, lease.size)).collect();
    let late = (Some(Oid::of(b"123")), Some(3));
    assert_eq!(learnt, [(Some(blob), Some(5)), (Some(described), None), late]);
    Ok(())
}

fn done<S: Leases>(store: &S) -> CheckResult {
    for (number, by_content) in [(1, false), (2, true)] {
        let data = pattern(2 * PIECE, number);
        store.lease(&lease(live(number), 1))?;
        let oid = put(store, &live(number), &data)?;
        expect_content(store, &oid, &data)?;
        let seen = store.version(&live(number));
        assert!(store.done(&(if by_content { oid } else { live(number) }))?);
        assert_ne!(store.version(&live(number)), seen);
        expect_gone(store, &live(number));
        expect_complete(store, &oid, &data)?;
        assert!(!store.done(&oid)?);
        assert!(!store.done(&live(number))?);
    }
    assert_eq!(store.leases()?, []);
    Ok(())
}

fn shared<S: Leases>(store: &S) -> CheckResult {
    for number in [1, 2] {
        store.lease(&lease(live(number), number.into()))?;
        put(store, &live(number), b"shared")?;
    }
    let oid = Oid::of(b"shared");
    store.lease(&lease(oid, 3))?;
    assert!(store.done(&live(2))?);
    assert!(store.done(&oid)?, "the lease of that very name goes first");
    assert_eq!(store.leases()?.len(), 1);
    expect_content(store, &live(1), b"shared")?;
    assert!(store.done(&oid)?);
    expect_gone(store, &live(1));
    assert!(!store.done(&oid)?);
    expect_complete(store, &oid, b"shared")
}

fn sessions<S: Leases>(store: &S) -> CheckResult {
    let (ours, other) = ([1; 16], [2; 16]);
    let holders = [Holder::Session(ours), Holder::Session(other), Holder::Pinned, Holder::Session(ours)];
    for (number, holder) in (1..).zip(holders) {
        store.lease(&Lease { holder, ..lease(live(number), number.into()) })?;
        put(store, &live(number), b"shared")?;
    }
    let found: Vec<_> = store.leases()?.iter().map(|lease| lease.holder).collect();
    assert_eq!(found, holders);
    assert_eq!(store.end_session(&ours)?, [live(1), live(4)]);
    assert_eq!(store.end_session(&ours)?, []);
    let left: Vec<_> = store.leases()?.iter().map(|lease| lease.oid).collect();
    assert_eq!(left, [live(2), live(3)]);
    [1, 4].map(live).iter().for_each(|ended| expect_gone(store, ended));
    [2, 3].map(live).iter().try_for_each(|held| expect_content(store, held, b"shared"))?;
    // A lease that is taken over by another holder is ended by that one alone.
    store.lease(&Lease { holder: Holder::Pinned, ..lease(live(2), 2) })?;
    assert_eq!(store.end_session(&other)?, []);
    expect_complete(store, &Oid::of(b"shared"), b"shared")
}

fn open<S: Leases>(store: &S) -> CheckResult {
    store.put_init(&live(1), &About::default())?;
    store.lease(&lease(live(1), 1))?;
    assert!(store.done(&live(1))?);
    assert_eq!(store.leases()?, []);
    store.put_data(&live(1), b"bytes")?;
    expect_complete(store, &store.put_commit(&live(1))?, b"bytes")
}
