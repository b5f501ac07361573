//! Two namespaces and the pair of devices between them. They go when this is dropped.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::runner::skip;

/// The two ends, `left` and `right`.
pub struct Cable {
    names: [String; 2],
}

/// Addresses of the ends.
pub const LEFT: &str = "198.51.100.1";
pub const RIGHT: &str = "198.51.100.2";

impl Cable {
    /// Two machines that see each other.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = ["l", "r"].map(|end| format!("towlan-{}-{number}{end}", std::process::id()));
        let cable = Self { names };
        for name in &cable.names {
            if let Err(why) = ip(&["netns", "add", name]) {
                assert!(std::env::var_os("CI").is_none(), "no namespaces: {why}");
                skip(&format!("no network namespaces here: {why}"));
            }
        }
        let [left, right] = &cable.names;
        ip(&["link", "add", "lan0", "netns", left, "type", "veth", "peer", "name", "lan0", "netns", right])
            .unwrap();
        for (name, address, v6) in [(left, LEFT, "2001:db8:7::1/64"), (right, RIGHT, "2001:db8:7::2/64")] {
            // Addresses count at once, without a look for others who have them.
            let look = |which| fs::write(format!("/proc/sys/net/ipv6/conf/{which}/accept_dad"), "0").unwrap();
            enter(name, || ["all", "lan0"].into_iter().for_each(look));
            ip(&["-n", name, "link", "set", "lo", "up"]).unwrap();
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "lan0"]).unwrap();
            ip(&["-n", name, "address", "add", v6, "dev", "lan0", "nodad"]).unwrap();
            ip(&["-n", name, "link", "set", "lan0", "up"]).unwrap();
        }
        cable.names.iter().for_each(|name| wait_until_up(name));
        cable
    }

    /// Takes the device away, and with it the one of the other end: machines on no network.
    pub fn cut(&self) {
        ip(&["-n", &self.names[0], "link", "del", "lan0"]).unwrap();
    }

    /// Runs `work` on the left machine, in a thread; so are the threads that it starts.
    pub fn left<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.names[0], work)
    }

    /// The same on the right one.
    pub fn right<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.names[1], work)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            // If it was never made, there is nothing to remove.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// The kernel takes up to a second to say that a cable is plugged in.
fn wait_until_up(name: &str) {
    let is_up = || ip(&["-n", name, "link", "show", "dev", "lan0"]).unwrap().contains("state UP");
    assert!((0..10_000).any(|_| is_up()), "the pair of devices does not come up");
}

/// Lets `ip` do this; gives what it prints.
fn ip(words: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(words).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn enter<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
