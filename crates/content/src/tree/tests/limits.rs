//! Every limit at zero, at its maximum and one above, reported alike by encoder and decoder.

use super::*;
use crate::pieces::MAX_SIZE;

fn check_allowed(event: Event, live: bool) {
    let events = tree([event]);
    let bytes = encode(&events, live).unwrap();
    assert!(decode(&bytes).is_ok_and(|located| events_of(located) == events));
}

/// Refused by the encoder for the same reason as its bytes, made without check, by the decoder.
fn check_refused(event: Event, why: &str) {
    let events = tree([event]);
    assert_eq!(encode(&events, false).unwrap_err().to_string(), why);
    let bytes = items(&events);
    if bytes.len() <= CAPACITY {
        assert!(decode(&last_block(&bytes)).is_err(), "{why}");
        assert!(oids_in_block(&last_block(&bytes)).is_err() || why.starts_with("name"), "{why}");
    }
}

fn metadata(change: impl FnOnce(&mut Metadata)) -> Event {
    with(file("a"), |entry| change(&mut entry.metadata))
}

fn sized(size: u64) -> Event {
    leaf("a", Kind::File { size, oid: Some(Oid::of(b"")), extents: None })
}

fn link(len: usize) -> Event {
    leaf("a", Kind::Symlink { target: vec![b'/'; len] })
}

fn xattrs(xattrs: Vec<Xattr>) -> Event {
    metadata(|metadata| metadata.xattrs = xattrs)
}

fn extents(size: u64, extents: &[(u64, u64)]) -> Event {
    let extents = extents.iter().map(|&(offset, len)| Extent { offset, len }).collect();
    leaf("a", Kind::File { size, oid: Some(Oid::of(b"")), extents: Some(extents) })
}

#[test]
fn names() {
    check_allowed(file("a"), false);
    check_allowed(file("..."), false);
    check_allowed(file(b"\xff\x01\n\\"), false);
    check_allowed(file([b'a'; MAX_NAME]), false);
    check_refused(file([b'a'; MAX_NAME + 1]), "name is 256, over the limit of 255");
}

#[test]
fn sizes() {
    check_allowed(sized(0), false);
    check_allowed(sized(MAX_SIZE), false);
    check_refused(sized(MAX_SIZE + 1), "file size is 17592186044417, over the limit of 17592186044416");
    check_refused(sized(u64::MAX), "file size is 18446744073709551615, over the limit of 17592186044416");
}

#[test]
fn oids() {
    let with_oid = |oid| leaf("a", Kind::File { size: 1, oid, extents: None });
    for oid in [None, Some(Oid::Live([1; 32]))] {
        check_allowed(with_oid(oid), true);
        check_refused(with_oid(oid), "OID: is unknown or live in a tree that is not live");
    }
    check_allowed(with_oid(Some(Oid::of(b""))), true);
}

#[test]
fn modes_and_times() {
    let mode = |mode| metadata(|metadata| metadata.mode = mode);
    let time = |seconds, nanos| metadata(|metadata| metadata.modified = Time { seconds, nanos });
    for allowed in [mode(0), mode(0o7777), time(0, 0), time(i64::MIN, NANOS - 1), time(i64::MAX, 0)] {
        check_allowed(allowed, false);
    }
    check_refused(mode(0o10000), "mode is 4096, over the limit of 4095");
    check_refused(time(0, NANOS), "nanoseconds is 1000000000, over the limit of 999999999");
}

#[test]
fn owners() {
    let user = |id, name: &[u8]| metadata(|metadata| metadata.user = Owner { id, name: name.to_vec() });
    let group = |id, name: &[u8]| metadata(|metadata| metadata.group = Owner { id, name: name.to_vec() });
    for allowed in [user(0, b""), group(u32::MAX, &[b'x'; MAX_OWNER_NAME])] {
        check_allowed(allowed, false);
    }
    check_refused(user(1, &[b'x'; MAX_OWNER_NAME + 1]), "user name is 256, over the limit of 255");
    check_refused(group(1, &[b'x'; MAX_OWNER_NAME + 1]), "group name is 256, over the limit of 255");
    check_refused(user(1, b"\0"), "user name: contains NUL");
    check_refused(group(1, b"x\0"), "group name: contains NUL");
}

#[test]
fn targets() {
    check_allowed(link(1), false);
    check_allowed(link(MAX_TARGET), false);
    check_refused(link(0), "symlink target: is empty");
    check_refused(link(MAX_TARGET + 1), "symlink target is 4096, over the limit of 4095");
    check_refused(leaf("a", Kind::Symlink { target: b"a\0".to_vec() }), "symlink target: contains NUL");
}

#[test]
fn devices_and_hard_links() {
    let numbers = [0, u32::MAX];
    for (major, minor) in numbers.into_iter().zip(numbers) {
        check_allowed(leaf("a", Kind::CharDevice { major, minor }), false);
        check_allowed(leaf("a", Kind::BlockDevice { major, minor }), false);
    }
    for number in [0, u64::MAX] {
        check_allowed(with(leaf("a", Kind::Fifo), |entry| entry.hard_link = Some(number)), false);
    }
    let mut events = tree([]);
    events[0] = with(enter(""), |entry| entry.hard_link = Some(0));
    assert_eq!(encode(&events, false).unwrap_err().to_string(), "hard link: is on a directory");
    assert_eq!(decode(&last_block(&items(&events))).unwrap_err().to_string(), "hard link: is on a directory");
}

#[test]
fn attributes() {
    let full = ["a", "b", "c"].map(|name| xattr(name, [1; MAX_XATTR_VALUE]));
    let rest = MAX_XATTRS - 3 * (MAX_XATTR_VALUE + 1);
    let sum = |last: usize| xattrs([&full[..], &[xattr("d", vec![1; last - 1])]].concat());
    check_allowed(xattrs(vec![xattr([1; MAX_NAME], [])]), false);
    check_allowed(sum(rest), false);
    check_refused(sum(rest + 1), "attributes of one entry is 262145, over the limit of 262144");
    let too_long = xattrs(vec![xattr("a", [0; MAX_XATTR_VALUE + 1])]);
    check_refused(too_long, "attribute value is 65537, over the limit of 65536");
    check_refused(xattrs(vec![xattr([1; MAX_NAME + 1], [])]), "attribute name is 256, over the limit of 255");
    check_refused(xattrs(vec![xattr("", [])]), "attribute name: is empty");
    check_refused(xattrs(vec![xattr("a\0", [])]), "attribute name: contains NUL");
    for names in [["b", "a"], ["a", "a"]] {
        check_refused(xattrs(names.map(|name| xattr(name, [])).to_vec()), "attribute name: is not in order");
    }
}

#[test]
fn extents_of_sparse_files() {
    check_allowed(extents(1, &[]), false);
    check_allowed(extents(2, &[(0, 1)]), false);
    check_allowed(extents(2, &[(1, 1)]), false);
    check_allowed(extents(MAX_SIZE, &[(0, 1), (2, MAX_SIZE - 2)]), false);
    check_refused(extents(0, &[]), "extents: leave no hole");
    check_refused(extents(2, &[(0, 2)]), "extents: leave no hole");
    check_refused(extents(2, &[(0, 0)]), "extent: is empty");
    check_refused(extents(9, &[(0, 1), (1, 1)]), "extent: does not follow a hole");
    check_refused(extents(9, &[(8, 2)]), "extent: is not inside the file");
    check_refused(extents(9, &[(u64::MAX - 1, 1)]), "extent: is not inside the file");
    let events = tree([extents(9, &[(4, 1), (2, 1)])]);
    assert_eq!(encode(&events, false).unwrap_err().to_string(), "extent: does not follow a hole");
    let events = tree([extents(9, &[(u64::MAX, 1)])]);
    assert_eq!(encode(&events, false).unwrap_err().to_string(), "extent: is not inside the file");
}

#[test]
fn extents_that_overflow_or_are_too_many() {
    let many = |count| extents(MAX_SIZE, &(0..count as u64).map(|i| (2 * i, 1)).collect::<Vec<_>>());
    check_allowed(many(MAX_EXTENTS), false);
    check_refused(many(MAX_EXTENTS + 1), "extents is 16385, over the limit of 16384");
    let mut payload = items(&[extents(2, &[])]);
    payload.pop();
    for hostile in [&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1][..], &[0xff, 0xff, 1]] {
        assert!(decode(&last_block(&[&payload, hostile].concat())).is_err());
    }
}

#[test]
fn depth() {
    let deep = |levels: usize| {
        let enters = (0..levels).map(|_| enter("d"));
        tree(enters.chain((0..levels).map(|_| Event::Leave)))
    };
    for levels in [0, 1, MAX_DEPTH] {
        let bytes = encode(&deep(levels), false).unwrap();
        assert_eq!(decode(&bytes).unwrap().len(), 2 * levels + 2);
    }
    let why = "depth is 2049, over the limit of 2048";
    assert_eq!(encode(&deep(MAX_DEPTH + 1), false).unwrap_err().to_string(), why);
    assert_eq!(decode(&last_block(&items(&deep(MAX_DEPTH + 1)))).unwrap_err().to_string(), why);
}

/// As many attributes as their bytes allow: names of one, two and three bytes, no values.
fn most_xattrs() -> Vec<Xattr> {
    let bytes = || 1..=u8::MAX;
    let one = bytes().map(|a| vec![a]);
    let two = bytes().flat_map(|a| bytes().map(move |b| vec![a, b]));
    let three = bytes().flat_map(|a| bytes().flat_map(move |b| bytes().map(move |c| vec![a, b, c])));
    let count = (MAX_XATTRS - 255 - 2 * 255 * 255) / 3;
    let mut names: Vec<_> = one.chain(two).chain(three.take(count)).collect();
    names.sort_unstable();
    names.into_iter().map(|name| xattr(name, [])).collect()
}

#[test]
fn the_longest_entries_pass() {
    let spread = MAX_SIZE / MAX_EXTENTS as u64;
    let runs: Vec<_> = (0..MAX_EXTENTS as u64).map(|i| (i * spread, spread / 2)).collect();
    let longest = |xattrs| {
        with(extents(MAX_SIZE, &runs), |entry| {
            let owner = Owner { id: u32::MAX, name: vec![1; MAX_OWNER_NAME] };
            entry.name = vec![1; MAX_NAME];
            entry.hard_link = Some(u64::MAX);
            let modified = Time { seconds: i64::MIN, nanos: NANOS - 1 };
            entry.metadata = Metadata { mode: MAX_MODE, user: owner.clone(), group: owner, modified, xattrs };
        })
    };
    let values = (1..=3).map(|name| xattr([name], [1; MAX_XATTR_VALUE])).collect();
    for event in [longest(values), longest(most_xattrs())] {
        assert!(items(std::slice::from_ref(&event)).len() + MAX_INLINE as usize <= item::MAX_ITEM);
        check_allowed(event, false);
    }
}
