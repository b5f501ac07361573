//! Tables of who comes in and who goes.

use super::*;
use towpath_config::Count;

/// Connections that there are (host, whether it has spoken, its age in seconds), who comes, and who goes for it.
type Row = (&'static [(u8, bool, u64)], u8, Option<u64>);

const SECOND: Duration = Duration::from_secs(1);

fn limits(connections: u64, address: u64, handshakes: u64, strangers: u64) -> Limits {
    Limits {
        connections: Count(connections),
        connections_per_address: Count(address),
        handshakes: Count(handshakes),
        strangers: Count(strangers),
        ..Limits::default()
    }
}

fn at(ip: &str) -> CallerOrigin {
    ip.parse::<IpAddr>().unwrap().into()
}

fn from(host: u8) -> CallerOrigin {
    CallerOrigin::from(IpAddr::from([192, 0, 2, host]))
}

struct Scene {
    table: ConnectionTable,
    limits: Limits,
    now: Instant,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        Self { table: ConnectionTable::default(), limits, now: Instant::now() }
    }

    fn admit(&mut self, from: CallerOrigin) -> Result<Handshake, Excess> {
        self.table.admit(&self.limits, from, self.now)
    }

    /// Shakes hands and enters; who loses its place for it.
    fn enter(&mut self, from: CallerOrigin, is_known: bool) -> Result<(u64, Option<u64>), Excess> {
        let id = self.admit(from)?.id;
        let entered = self.table.enter(&self.limits, id, NodeId([id as u8; 32]), is_known);
        if entered.is_err() {
            self.table.leave(id);
        }
        entered.map(|loses| (id, loses))
    }
}

#[test]
fn addresses_are_counted_by_who_has_them() {
    for (one, other, near, wide) in [
        ("192.0.2.1", "192.0.2.1", true, false),
        ("192.0.2.1", "192.0.2.2", false, false),
        ("::ffff:192.0.2.1", "192.0.2.1", true, false),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false, false),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true, true),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", false, true),
        ("2001:db8:1:2::1", "2001:db8:2:2::1", false, false),
        ("2001:db8:1::", "2001:db8:1:ffff::", false, true),
    ] {
        let caller =
            CallerEntry { from: at(one), since: Instant::now(), stage: CallerStage::Known(NodeId([0; 32])) };
        assert_eq!(
            (caller.is_near(&at(other)), caller.is_in_reach(&at(other))),
            (near, wide),
            "{one} {other}"
        );
    }
}

#[test]
fn one_host_with_ipv6_has_no_more_places_than_one_address_and_its_network_four_times_as_many() {
    let mut scene = Scene::new(limits(1000, 3, 1000, 1000));
    for host in 1..=3 {
        scene.enter(at(&format!("2001:db8:1:1::{host}")), true).unwrap();
    }
    assert_eq!(scene.enter(at("2001:db8:1:1::4"), true), Err(Excess::Address));
    for network in 2..=4 {
        for host in 1..=3 {
            scene.enter(at(&format!("2001:db8:1:{network}::{host}")), true).unwrap();
        }
    }
    assert_eq!(scene.enter(at("2001:db8:1:5::1"), true), Err(Excess::Address), "twelve of its /48");
    assert!(scene.enter(at("2001:db8:2:1::1"), true).is_ok());
    assert!(scene.enter(at("::ffff:192.0.2.1"), true).is_ok());
}

#[test]
fn who_shakes_hands_goes_for_whom() {
    // Peers there by host, in order of arrival: (host, has spoken, age in seconds); the new one; the one that goes.
    let table: [Row; 10] = [
        (&[(1, false, 0), (2, false, 0), (3, false, 0)], 4, Some(0)),
        (&[(1, true, 0), (2, false, 0), (3, false, 0)], 4, Some(1)),
        (&[(1, true, 9), (2, true, 9), (3, true, 9)], 4, None),
        (&[(1, true, 9), (2, true, 9), (2, true, 9)], 4, Some(1)),
        (&[(1, false, 1), (2, true, 1), (2, false, 1)], 4, Some(2)),
        (&[(1, false, 2), (2, true, 1), (2, false, 1)], 4, Some(0)),
        (&[(1, false, 3), (2, false, 2), (2, false, 2)], 4, Some(1)),
        // For an address that has the most, one of its own goes, if it says nothing, and no other.
        (&[(1, false, 0), (2, true, 0), (2, true, 0)], 2, None),
        (&[(1, true, 0), (2, true, 0), (2, true, 0)], 2, None),
        (&[(2, false, 0), (2, true, 0), (2, true, 0)], 2, Some(0)),
    ];
    for (there, comes, goes) in table {
        let mut scene = Scene::new(limits(100, 100, 3, 100));
        let end = scene.now + 10 * SECOND;
        for &(host, has_spoken, age) in there {
            scene.now = end - SECOND * age as u32;
            let admitted = scene.admit(from(host)).unwrap();
            if has_spoken {
                scene.table.spoke(admitted.id);
            }
        }
        scene.now = end;
        let admitted = scene.admit(from(comes));
        assert_eq!(admitted.as_ref().ok().and_then(|it| it.loses), goes, "{there:?} {comes}");
        assert_eq!(admitted.err(), goes.is_none().then_some(Excess::Handshakes), "{there:?} {comes}");
        assert_eq!(scene.table.handshakes(), 3);
    }
}

/// As long as places are short; the first of those from two addresses lose theirs.
#[test]
fn a_hundred_silent_connections_from_two_addresses_keep_no_third_one_out() {
    let mut scene = Scene::new(limits(256, 32, 64, 32));
    for round in 0..300u64 {
        let _ = scene.admit(from(2 + (round % 2) as u8));
        scene.now += Duration::from_millis(7);
        assert!(scene.table.handshakes() <= 64);
    }
    for _ in 0..10 {
        let (id, _) = scene.enter(from(1), false).unwrap();
        assert!(scene.table.know(id));
    }
}

#[test]
fn strangers_go_first_when_places_are_full_and_whoever_is_known_stays() {
    // Places of all, of an address, of strangers; who is there: (host, is known); who comes; who goes.
    type Row<'a> = ([u64; 3], &'a [(u8, bool)], (u8, bool), Result<Option<u64>, Excess>);
    let table: [Row<'_>; 12] = [
        ([9, 9, 9], &[(1, false), (2, true)], (3, false), Ok(None)),
        ([3, 9, 9], &[(1, true), (2, false), (3, false)], (4, false), Ok(Some(1))),
        ([3, 9, 9], &[(1, true), (2, true), (3, true)], (4, false), Err(Excess::All)),
        ([3, 9, 9], &[(1, true), (2, false), (3, true)], (4, true), Ok(Some(1))),
        // Of the address that has the most strangers the oldest.
        ([4, 9, 9], &[(1, false), (2, false), (2, false), (3, true)], (4, false), Ok(Some(1))),
        ([4, 9, 9], &[(1, false), (2, true), (2, true), (2, true)], (4, false), Ok(Some(0))),
        // Its own address is full: one of that goes, and no other.
        ([9, 2, 9], &[(1, false), (2, false), (2, true)], (2, false), Ok(Some(1))),
        ([9, 2, 9], &[(1, false), (2, true), (2, true)], (2, false), Err(Excess::Address)),
        // Strangers have few places, whatever else is free; those who are known from the beginning have more.
        ([9, 9, 2], &[(1, false), (2, false)], (3, false), Ok(Some(0))),
        ([9, 9, 2], &[(1, false), (2, false), (2, true)], (3, true), Ok(None)),
        ([9, 9, 2], &[(1, true), (2, true), (2, true)], (3, false), Ok(None)),
        ([9, 9, 3], &[(1, false), (2, false), (2, false)], (1, false), Ok(Some(1))),
    ];
    for ([all, address, strangers], there, (host, is_known), expected) in table {
        let mut scene = Scene::new(limits(all, address, 100, strangers));
        for &(host, is_known) in there {
            scene.enter(from(host), is_known).unwrap();
        }
        let came = scene.enter(from(host), is_known).map(|(_, loses)| loses);
        assert_eq!(came, expected, "{all} {address} {strangers} {there:?}");
        let lost = usize::from(matches!(expected, Ok(Some(_))));
        assert_eq!(scene.table.connections(), there.len() + usize::from(expected.is_ok()) - lost);
    }
}

#[test]
fn whoever_shows_a_right_in_time_is_not_in_the_way() {
    let mut scene = Scene::new(limits(9, 9, 9, 2));
    let (first, _) = scene.enter(from(1), false).unwrap();
    assert!(scene.table.know(first) && scene.table.know(first));
    let (second, _) = scene.enter(from(1), false).unwrap();
    assert_eq!(scene.enter(from(1), false).unwrap().1, None);
    assert_eq!(scene.enter(from(1), false).unwrap().1, Some(second));
    assert!(!scene.table.know(second), "it has lost its place");
}

#[test]
fn whoever_lost_its_place_while_shaking_hands_does_not_enter() {
    let mut scene = Scene::new(limits(9, 9, 1, 9));
    let first = scene.admit(from(1)).unwrap();
    assert_eq!(scene.admit(from(2)).unwrap().loses, Some(first.id));
    let entered = scene.table.enter(&scene.limits, first.id, NodeId([1; 32]), true);
    assert_eq!((entered, scene.table.connections()), (Err(Excess::Handshakes), 1));
}

#[test]
fn those_that_this_side_dialled_take_the_places_that_callers_leave_and_keep_none_of_them_out() {
    let mut scene = Scene::new(Limits { connections_per_node: Count(2), ..limits(3, 9, 9, 9) });
    let (one, other) = (NodeId([90; 32]), NodeId([91; 32]));
    let first = scene.table.dialled(&scene.limits, one).unwrap();
    assert!(scene.table.dialled(&scene.limits, one).is_some());
    assert_eq!(scene.table.dialled(&scene.limits, one), None, "as many as one node may have");
    assert!(scene.table.dialled(&scene.limits, other).is_some());
    assert_eq!(scene.table.dialled(&scene.limits, NodeId([92; 32])), None, "as many as there may be");
    for host in 0..3 {
        assert!(scene.enter(from(host), true).is_ok(), "callers have their own places");
    }
    scene.table.leave(first);
    assert_eq!(scene.table.dialled(&scene.limits, one), None, "callers took what there is");
    assert_eq!(scene.table.connections(), 3);
}
