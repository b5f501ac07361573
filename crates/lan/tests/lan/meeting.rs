//! Who is found, who is not, and what is told of it on the wire.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use towpath_lan::{LanAnnouncement, LanError, find, numbers_in_use};

use crate::cable::{Cable, LEFT, RIGHT};
use crate::runner::situations;

situations![
    a_code_that_waits_is_found_by_its_number_over_both_kinds_of_address,
    several_hosts_of_one_number_are_all_found,
    what_is_withdrawn_is_found_no_more,
    nothing_on_the_wire_tells_names_of_the_machine,
    what_leads_elsewhere_is_not_found,
    without_a_network_it_says_so,
];

/// Much longer than anything takes here; what is there is found at once.
const LONG: Duration = Duration::from_secs(20);
/// Long enough to hear of all that is announced, several times over.
const SHORT: Duration = Duration::from_secs(3);

fn v4(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn a_code_that_waits_is_found_by_its_number_over_both_kinds_of_address() {
    let cable = Cable::new();
    let _other = cable.left(|| LanAnnouncement::start(8, 4008).unwrap());
    let _waiting = cable.left(|| LanAnnouncement::start(7, 4007).unwrap());
    let mut found = BTreeSet::new();
    let mut is_all = |address: SocketAddr| {
        found.insert(address);
        let has = |is: fn(&SocketAddr) -> bool| found.iter().any(is);
        has(SocketAddr::is_ipv4) && has(is_global_v6) && has(is_link_local)
    };
    let is_complete = cable.right(|| find(7, LONG).unwrap().any(&mut is_all));
    assert!(is_complete && found.contains(&v4(LEFT, 4007)), "not all kinds of address: {found:?}");
    assert!(found.iter().all(|address| address.port() == 4007 && !address.ip().is_loopback()), "{found:?}");
}

fn is_global_v6(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if !v6.ip().is_unicast_link_local())
}

/// With its link, or nobody could connect to it.
fn is_link_local(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() != 0)
}

fn several_hosts_of_one_number_are_all_found() {
    let cable = Cable::new();
    let _one = cable.left(|| LanAnnouncement::start(7, 4001).unwrap());
    let _two = cable.right(|| LanAnnouncement::start(7, 4002).unwrap());
    let _three = cable.right(|| LanAnnouncement::start(9, 4003).unwrap());
    let mut missing = BTreeSet::from([v4(LEFT, 4001), v4(RIGHT, 4002)]);
    let is_last = |address: SocketAddr| missing.remove(&address) && missing.is_empty();
    assert!(cable.right(|| find(7, LONG).unwrap().any(is_last)), "its own machine's too");
    assert_eq!(cable.left(|| numbers_in_use(SHORT).unwrap()), BTreeSet::from([7, 9]));
}

fn what_is_withdrawn_is_found_no_more() {
    let cable = Cable::new();
    let waiting = cable.left(|| LanAnnouncement::start(7, 4007).unwrap());
    assert!(cable.right(|| find(7, LONG).unwrap().next()).is_some());
    drop(waiting);
    assert_eq!(cable.right(|| find(7, SHORT).unwrap().next()), None);
    assert!(cable.right(|| numbers_in_use(SHORT).unwrap()).is_empty());
}

/// A socket that hears what all hear.
fn ear(own: &str) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 5353)).into()).unwrap();
    socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &own.parse().unwrap()).unwrap();
    socket.set_multicast_if_v4(&own.parse().unwrap()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.into()
}

/// Names that must not be told: of the machine, of whoever runs this, and of the folder it runs in.
fn own_names() -> Vec<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let variables = ["USER", "LOGNAME", "HOME", "HOSTNAME"].map(std::env::var);
    let folder = std::env::current_dir().unwrap();
    let mut names = vec![host.trim().to_owned(), folder.file_name().unwrap().to_string_lossy().into_owned()];
    names.extend(variables.into_iter().flatten());
    let names = names.iter().flat_map(|name| name.split(['/', '.'])).map(str::to_lowercase);
    // Short ones are found in anything, so they count where their length stands before them, as before each name.
    let sought = |name: String| match name.len() {
        0 => None,
        len @ 1..=3 => Some(format!("{}{name}", char::from(len as u8))),
        _ => Some(name),
    };
    names.filter_map(sought).collect()
}

fn nothing_on_the_wire_tells_names_of_the_machine() {
    let cable = Cable::new();
    let ear = cable.right(|| ear(RIGHT));
    let names = own_names();
    assert!(!names.is_empty());
    let mut tags = BTreeSet::new();
    for number in [7, 7] {
        let waiting = cable.left(|| LanAnnouncement::start(number, 4007).unwrap());
        let mut packet = [0; 9000];
        // They come by themselves, with all that is told in one packet.
        loop {
            let (len, _) = ear.recv_from(&mut packet).unwrap();
            let text = String::from_utf8_lossy(&packet[..len]).to_lowercase();
            for name in &names {
                assert!(!text.contains(name.as_str()), "{name} is in {text:?}");
            }
            if text.contains("_towpath-code") && text.contains("n=7") && tags.insert(tag_in(&text)) {
                break;
            }
        }
        drop(waiting);
    }
    assert!(tags.iter().all(|tag| tag.len() == 16), "each announcement has a tag of its own: {tags:?}");
}

/// The name of an announcement: 16 hexadecimal digits.
fn tag_in(text: &str) -> String {
    let mut runs = text.split(|c: char| !c.is_ascii_hexdigit());
    runs.find(|run| run.len() == 16).unwrap_or_default().to_owned()
}

/// A liar on the LAN answers with addresses of this machine's loopback and of other networks.
fn what_leads_elsewhere_is_not_found() {
    let cable = Cable::new();
    let liar = cable.left(|| {
        let daemon = mdns_sd::ServiceDaemon::new().unwrap();
        let lies = "127.0.0.1,169.254.169.254,203.0.113.1,198.51.100.1,198.51.100.255";
        let all = &[("v", "1"), ("n", "7")][..];
        let kind = "_towpath-code._tcp.local.";
        let info = mdns_sd::ServiceInfo::new(kind, "liar", "liar.local.", lies, 4007, all).unwrap();
        daemon.register(info).unwrap();
        daemon
    });
    let found: BTreeSet<SocketAddr> = cable.right(|| find(7, SHORT).unwrap().collect());
    assert!(found.is_subset(&BTreeSet::from([v4(LEFT, 4007)])), "{found:?}");
    liar.shutdown().unwrap();
}

fn without_a_network_it_says_so() {
    let cable = Cable::new();
    cable.cut();
    let said = cable.left(|| LanAnnouncement::start(7, 4007).err().unwrap());
    assert!(matches!(said, LanError::NoNetwork), "{said}");
    let said = cable.right(|| find(7, SHORT).err().unwrap());
    assert!(matches!(said, LanError::NoNetwork), "{said}");
}
