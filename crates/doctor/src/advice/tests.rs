use super::*;

/// A machine on which all is well.
fn well() -> Findings {
    let address = |ip: &str, kind, is_named| AddressFinding {
        interface: "eth0".into(),
        ip: ip.parse().unwrap(),
        kind,
        is_named,
    };
    Findings {
        addresses: vec![
            address("127.0.0.1", AddressKind::Loopback, false),
            address("192.168.1.7", AddressKind::Private, true),
        ],
        ports: vec![("[::]:0".parse().unwrap(), Ok(()))],
        rendezvous: vec![server(Ok(seen(&["203.0.113.7:7"]))), server(Ok(seen(&["203.0.113.7:7"])))],
        relays: vec![server(Ok(ServerAnswer::default()))],
        pass: None,
        multicast: MulticastFinding::Heard(Duration::from_millis(300)),
        daemon: DaemonFinding::Missing,
        state: StateFinding { folder: "/home/ann".into(), trouble: None, free: Some(5 << 30) },
        ssh: Some(PathBuf::from("/usr/bin/ssh")),
        clock: ClockFinding::Plausible,
    }
}

fn server(answer: Result<ServerAnswer, String>) -> ServerFinding {
    ServerFinding { place: "meet.example.org:4433".into(), answer }
}

fn seen(addresses: &[&str]) -> ServerAnswer {
    let seen = addresses.iter().map(|address| (7, address.parse().unwrap())).collect();
    ServerAnswer { round_trip: Some(Duration::from_millis(12)), seen, ..ServerAnswer::default() }
}

/// The rows that are not well.
fn unwell(change: impl Fn(&mut Findings)) -> Vec<CheckRow> {
    let mut findings = well();
    change(&mut findings);
    rows(&findings, "0.1.0").into_iter().filter(|row| row.state != CheckState::Ok).collect()
}

#[test]
fn where_all_is_well_there_is_no_advice() {
    let rows = rows(&well(), "0.1.0");
    assert!(rows.iter().all(|row| row.state == CheckState::Ok && row.advice.is_none()), "{rows:?}");
    let whats: Vec<_> = rows.iter().map(|row| row.what).collect();
    assert_eq!(
        whats,
        [
            "address",
            "listening",
            "multicast",
            "rendezvous",
            "rendezvous",
            "router",
            "relay",
            "daemon",
            "state",
            "ssh",
            "clock"
        ]
    );
}

/// What is changed, the row that it makes, its state, and words of what was found or of the advice.
type Case = (fn(&mut Findings), &'static str, CheckState, &'static str);

#[test]
fn each_trouble_has_a_row_with_advice() {
    use CheckState::{Note, Wrong};
    let table: [Case; 22] = [
        (|all| all.addresses.truncate(1), "address", Note, "none but loopback"),
        (|all| all.addresses.clear(), "address", Note, "none but loopback"),
        (|all| all.addresses[1].kind = AddressKind::LinkLocal, "address", Note, "DHCP"),
        (|all| all.ports[0].1 = Err("in use".into()), "listening", Wrong, "in use"),
        (|all| all.multicast = MulticastFinding::NotHeard, "multicast", Note, "5353"),
        (
            |all| all.multicast = MulticastFinding::Trouble("no network".into()),
            "multicast",
            Note,
            "no network",
        ),
        (
            |all| all.rendezvous[0] = server(Err("refused".into())),
            "rendezvous",
            Wrong,
            "meet.example.org:4433: refused",
        ),
        (|all| all.rendezvous[1] = server(Ok(seen(&["203.0.113.7:9"]))), "router", Note, ""),
        (|all| all.relays[0] = server(Err("refused".into())), "relay", Wrong, "port is open"),
        (|all| all.pass = Some("chmod".into()), "relay pass", Wrong, "chmod"),
        (|all| all.relays[0].answer.as_mut().unwrap().refused = Some("no".into()), "relay", Note, "--node"),
        (
            |all| {
                let answer = all.relays[0].answer.as_mut().unwrap();
                (answer.refused, answer.has_pass) = (Some("no".into()), true);
            },
            "relay",
            Wrong,
            "relay_pass",
        ),
        (
            |all| all.daemon = DaemonFinding::Silent { socket: "/s".into(), is_left: true, why: "x".into() },
            "daemon",
            Note,
            "remove the socket",
        ),
        (
            |all| all.daemon = DaemonFinding::Silent { socket: "/s".into(), is_left: false, why: "x".into() },
            "daemon",
            Wrong,
            "restart it",
        ),
        (
            |all| {
                all.daemon = DaemonFinding::Running { version: "0.0.9".into(), listening: vec!["x".into()] }
            },
            "daemon",
            Note,
            "0.0.9",
        ),
        (
            |all| all.daemon = DaemonFinding::Running { version: "0.1.0".into(), listening: Vec::new() },
            "daemon",
            Note,
            "listens nowhere",
        ),
        (|all| all.state.trouble = Some("read-only".into()), "state", Wrong, "TOW_HOME"),
        (|all| all.state.free = Some(1 << 20), "state", Wrong, "1 MiB"),
        (|all| all.state.free = Some(200 << 20), "state", Note, "tow gc"),
        (|all| all.ssh = None, "ssh", Note, "install"),
        (
            |all| all.clock = ClockFinding::BeforeProgram(Duration::from_secs(400_000)),
            "clock",
            Wrong,
            "4 days",
        ),
        (
            |all| {
                all.relays.clear();
                all.rendezvous[1] = server(Ok(seen(&["203.0.113.7:9"])));
            },
            "router",
            Note,
            "rendezvous.relays",
        ),
    ];
    for (at, (change, what, state, words)) in table.into_iter().enumerate() {
        let rows = unwell(change);
        if words.is_empty() {
            assert!(rows.is_empty(), "{at}: a relay helps where the router does not: {rows:?}");
            continue;
        }
        let [row] = &rows[..] else { panic!("{at}: {rows:?}") };
        assert_eq!((row.what, row.state), (what, state), "{at}");
        let told = format!("{} {}", row.found, row.advice.as_deref().unwrap());
        assert!(told.contains(words), "{at}: {told}");
    }
}

#[test]
fn without_servers_it_says_what_they_are_good_for() {
    let rows = unwell(|all| {
        all.rendezvous.clear();
        all.relays.clear();
    });
    let whats: Vec<_> = rows.iter().map(|row| (row.what, row.state)).collect();
    assert_eq!(whats, [("rendezvous", CheckState::Note), ("router", CheckState::Note)]);
}
