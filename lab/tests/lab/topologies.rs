//! Star, overlay, several links to one host, settings, disks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use towpath_lab::net::Lab;

use crate::machinery::{answered, need, need_lab, scenario, up};
use crate::runner::situations;

situations![
    leaves_of_a_star_reach_each_other_through_the_centre,
    an_overlay_forwards_along_the_fewest_hops,
    a_host_with_two_links_is_reached_over_each,
    a_host_behind_two_routers_is_reached_over_each,
    settings_of_a_case_hold_in_every_host,
    a_setting_that_cannot_be_is_named,
    each_host_has_a_directory_or_a_disk,
    a_disk_can_be_memory_or_slow,
    a_disk_that_cannot_be_is_named,
];

/// File where the kernel takes how fast a device may be read.
const READ_LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device";

fn leaves_of_a_star_reach_each_other_through_the_centre() {
    let lab = up("hosts = ['hub']\n[[star]]\ncentre = 'hub'\nleaf = 'r'\ncount = 5\nrate = '100mbit'");
    for leaf in ["r1", "r5"] {
        answered(&lab, "hub", lab.address(leaf), 2);
    }
    let (_, over) = answered(&lab, "r2", lab.address("r4"), 2);
    assert_eq!(over[..4], [0, 4, 0, 4]);
}

fn an_overlay_forwards_along_the_fewest_hops() {
    let rates = "rates = [['', '10mbit', '', '10mbit'], ['10mbit', '', '10mbit', ''], \
                 ['', '10mbit', '', '10mbit'], ['10mbit', '', '10mbit', '']]";
    let lab = up(&format!(
        "hosts = ['a', 'b', 'c', 'd', 'alone']\n[[overlay]]\nhosts = ['a', 'b', 'c', 'd']\ndelay = '1ms'\n{rates}"
    ));
    for (from, to) in [("a", "b"), ("a", "c"), ("a", "d"), ("c", "a"), ("b", "d")] {
        answered(&lab, from, lab.address(to), 2);
    }
    let (_, over) = answered(&lab, "a", lab.address("c"), 2);
    assert_eq!(over.iter().sum::<u64>(), 8, "two pings there and back over two links");
}

/// Pings all addresses of a receiver: only the link of each carries any, both ways.
fn check_links(lab: &Lab, own_links: [usize; 2]) {
    let addresses = lab.addresses("receiver");
    assert_eq!(addresses.len(), 2);
    for (address, own) in addresses.iter().zip(own_links) {
        let (_, over) = answered(lab, "sender", *address, 3);
        for link in own_links {
            let expected = if link == own { 6 } else { 0 };
            assert_eq!(over[link], expected, "pinging {address}: link {link}");
        }
    }
}

/// Emulated, since a plain link carries packets that ask for addresses too.
fn a_host_with_two_links_is_reached_over_each() {
    let lab =
        up("hosts = ['sender', 'receiver']\n[[link]]\nbetween = ['sender', 'receiver']\ndelay = '1ms'\n\
                  [[link]]\nbetween = ['sender', 'receiver']\ndelay = '1ms'\n");
    check_links(&lab, [0, 1]);
}

fn a_host_behind_two_routers_is_reached_over_each() {
    let lab = up("hosts = ['sender', 'north', 'south', 'receiver']\n\
                  [[link]]\nbetween = ['sender', 'north']\ndelay = '1ms'\n[[link]]\nbetween = ['sender', 'south']\ndelay = '1ms'\n\
                  [[link]]\nbetween = ['north', 'receiver']\ndelay = '1ms'\n[[link]]\nbetween = ['receiver', 'south']\ndelay = '1ms'\n");
    check_links(&lab, [2, 3]);
}

fn settings_of_a_case_hold_in_every_host() {
    need_lab();
    // One that may be there, but is not allowed in namespaces unless somebody allows it.
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let chosen = ["cubic", "bbr", "reno"].into_iter().find(|it| available.contains(it)).unwrap();
    let scenario = scenario(&format!(
        "hosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\n[[case]]\nname = ''\n[case.host]\n\
         'net.ipv4.tcp_congestion_control' = '{chosen}'\n'net.ipv4.ip_default_ttl' = 7\n",
    ));
    let lab = Lab::up(&scenario, &scenario.cases[0]).unwrap();
    for host in ["a", "b"] {
        for (path, expected) in
            [("tcp_congestion_control", chosen), ("ip_default_ttl", "7"), ("tcp_no_metrics_save", "1")]
        {
            let output = lab.command(host, "cat").arg(format!("/proc/sys/net/ipv4/{path}")).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{host}: {path}");
        }
    }
}

/// Refusal to make this scenario's lab.
fn refusal(text: &str) -> String {
    need_lab();
    let scenario = scenario(text);
    match Lab::up(&scenario, &scenario.cases[0]) {
        Ok(lab) => panic!("lab {} is up", lab.name()),
        Err(error) => error.to_string(),
    }
}

fn a_setting_that_cannot_be_is_named() {
    for (setting, expected) in [
        ("'net.ipv4.no_such' = 1", "net.ipv4.no_such = 1: a namespace has none of its own"),
        (
            "'net.ipv4.tcp_congestion_control' = 'x'",
            "net.ipv4.tcp_congestion_control = x: the kernel does not",
        ),
        ("'kernel.hostname' = 'x'", "`kernel.hostname` is no kernel parameter of a network"),
        ("'net.ipv4.ip_default_ttl' = [1]", "net.ipv4.ip_default_ttl: not text, a number"),
    ] {
        let said = refusal(&format!("hosts = ['a']\n[[case]]\nname = ''\n[case.host]\n{setting}\n"));
        assert!(said.starts_with(expected), "{said}");
    }
}

fn each_host_has_a_directory_or_a_disk() {
    need(Path::new("/dev/loop-control").exists(), "needs loop devices");
    let lab = up("hosts = ['plain', 'disk']\n[disk.disk]\nsize = '32m'\nwriter = '1m'\n");
    let [plain, disk] = ["plain", "disk"].map(|host| fs::metadata(lab.directory(host)).unwrap());
    assert_ne!(plain.dev(), disk.dev(), "a file system of its own");
    let writer = lab.directory("disk").join(".writer");
    crate::machinery::eventually("the writer writes", || fs::metadata(&writer).is_ok_and(|it| it.len() > 0));
    let written = lab.command("disk", "touch").arg(lab.directory("disk").join("mine")).status();
    assert!(written.unwrap().success(), "programs of the host see the disk");
    let size = rustix::fs::statvfs(lab.directory("disk")).unwrap();
    assert!(size.f_blocks * size.f_frsize <= 32 << 20);
    let files = lab.directory("disk").parent().unwrap().to_owned();
    drop(lab);
    assert!(!files.exists());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(files.to_str().unwrap()));
}

fn a_disk_can_be_memory_or_slow() {
    need(Path::new("/dev/loop-control").exists(), "needs loop devices");
    need(Path::new(READ_LIMIT).exists(), "needs control groups that bound devices");
    let lab = up("hosts = ['memory', 'slow']\n[disk.memory]\nfile_system = 'tmpfs'\n\
                  [disk.slow]\nsize = '32m'\nreader = '1m'\nload_after = '10s'\n\
                  [[case]]\nname = 'slow'\ndisk.slow = { read = '4m' }\n");
    assert!(!lab.directory("memory").with_extension("image").exists(), "no file lies behind it");
    let path = lab.directory("slow").join("file");
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    towpath_lab::disk::forget(&path).unwrap();
    let start = Instant::now();
    assert_eq!(fs::read(&path).unwrap().len(), 4 << 20);
    assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
    let bounds = fs::read_to_string(READ_LIMIT).unwrap();
    let own = bounds.lines().find(|line| line.ends_with(" 4194304")).unwrap().to_owned();
    drop(lab);
    assert!(!fs::read_to_string(READ_LIMIT).unwrap().contains(&own));
}

fn a_disk_that_cannot_be_is_named() {
    for (disk, expected) in [
        ("", "disk.a: it needs a size"),
        ("size = 'big'", "disk.a: `big` is not a size like 256k"),
        ("size = '1m'\ncolour = 'red'", "disk.a: unknown field `colour`"),
        ("size = '1m'\nfile_system = '../x'", "disk.a: `../x` is no file system"),
        ("size = '8m'\nfile_system = 'nosuch'", "running `mkfs.nosuch`"),
    ] {
        let said = refusal(&format!("hosts = ['a']\n[disk.a]\n{disk}\n"));
        assert!(said.starts_with(expected), "{said}");
    }
}
