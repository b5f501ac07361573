//! A lab: hosts as network namespaces, and links between them, from a scenario.
//!
//! | module | story |
//! |---|---|
//! | `plan` | who has which address, which way leads where |
//! | `veth` | a link that nothing is asked of |
//! | [`registry`] | which labs there are, and how nothing of them is left behind |
//! | [`control`] | other processes change a running link |
//! | [`changes`] | the scenario changes its links at its times |

pub mod changes;
pub mod control;
mod plan;
pub mod registry;
mod veth;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use toml::Value;
use towpath_simnet::link::Counters;
use towpath_simnet::scenario::{Case, LinkChange, LinkWay, Params, Scenario};

use self::changes::LinkChanges;
use self::control::NetControl;
use self::plan::NetPlan;
use self::registry::Registration;
use self::veth::Veth;
use crate::disk::Disk;
use crate::emulator::{self, Emulator};
use crate::error::LabError;
use crate::namespace::Namespace;

/// Hosts that a lab may have: each is a namespace, with routes to all others.
const MAX_HOSTS: usize = 500;

/// Set in every host: it forwards, also what comes from where it would not answer to; nothing is
/// remembered of earlier connections; IPv6 does not get in between.
const SETTINGS: [(&str, i64); 7] = [
    ("net.ipv4.ip_forward", 1),
    ("net.ipv4.conf.all.rp_filter", 0),
    ("net.ipv4.conf.default.rp_filter", 0),
    ("net.ipv4.conf.all.send_redirects", 0),
    ("net.ipv4.conf.default.send_redirects", 0),
    ("net.ipv4.tcp_no_metrics_save", 1),
    ("net.ipv6.conf.all.disable_ipv6", 1),
];

/// Namespaces and a running emulator. Dropped, all is taken down, and what still runs in it is ended.
pub struct Lab {
    changes: Vec<LinkChange>,
    hosts: HashMap<String, usize>,
    namespaces: Vec<Namespace>,
    directories: Vec<PathBuf>,
    plan: NetPlan,
    /// In the order of the links, for those that the emulator has nothing to do with.
    plain: Vec<Option<Veth>>,
    // Taken down in this order.
    _control: NetControl,
    disks: Vec<Disk>,
    registration: Registration,
    emulator: Arc<Emulator>,
}

impl Lab {
    /// Makes the hosts and links of a case of a scenario. Needs root. Names are unique, so that
    /// labs can stand side by side.
    pub fn up(scenario: &Scenario, case: &Case) -> Result<Self, LabError> {
        check_rights()?;
        if scenario.hosts.len() > MAX_HOSTS {
            let what = format!("{} hosts, and a lab has at most {MAX_HOSTS}", scenario.hosts.len());
            return Err(LabError::Scenario(what));
        }
        let registration = Registration::new()?;
        let plan = NetPlan::new(scenario.hosts.len(), case.links.iter().map(|link| link.between).collect());
        let namespaces = make_hosts(&registration, scenario, case)?;
        let (emulator, plain) = make_links(scenario, case, &namespaces)?;
        for (index, namespace) in namespaces.iter().enumerate() {
            namespace.batch(&plan.batch(index))?;
        }
        let hosts = scenario.hosts.iter().cloned().zip(0..).collect();
        let (directories, disks) = make_directories(&registration.files()?, scenario, case)?;
        let emulator = Arc::new(emulator);
        let names = case.links.iter().map(|link| link.name.clone()).collect();
        let control = NetControl::listen(&registration.socket(), names, Arc::clone(&emulator))?;
        Ok(Self {
            changes: scenario.changes.clone(),
            hosts,
            namespaces,
            directories,
            plan,
            plain,
            _control: control,
            disks,
            registration,
            emulator,
        })
    }

    /// Its name, for the commands `exec` and `set`.
    pub fn name(&self) -> &str {
        self.registration.name()
    }

    /// Command that runs a program in a host.
    ///
    /// # Panics
    /// If the scenario has no such host, as do all that take a host.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        self.namespaces[self.index(host)].command(program)
    }

    /// A host's primary address; every host that has a way to it has a route, along the fewest hops.
    pub fn address(&self, host: &str) -> Ipv4Addr {
        self.plan.primary(self.index(host))
    }

    /// One address for each link of a host, in the order of the links: reached over that link.
    pub fn addresses(&self, host: &str) -> Vec<Ipv4Addr> {
        self.plan.addresses(self.index(host))
    }

    /// Folder of a host's files: on its disk if the scenario gives it one, or else in a temporary
    /// directory. It is removed with the lab.
    pub fn directory(&self, host: &str) -> &Path {
        &self.directories[self.index(host)]
    }

    /// Changes a running link, for packets that come from now on.
    pub fn set(&self, link: usize, way: LinkWay, params: &Params) -> Result<(), LabError> {
        match self.emulator.set(link, way, params) {
            true => Ok(()),
            false if link < self.plain.len() => Err(LabError::Scenario(emulator::PLAIN.into())),
            false => Err(LabError::Scenario(format!("there is no link {link}"))),
        }
    }

    /// Counters of what went over each link so far: forth, back.
    pub fn counters(&self) -> Result<Vec<[Counters; 2]>, LabError> {
        let both = self.emulator.counters().into_iter().zip(&self.plain);
        let read = |(emulated, plain): (Option<_>, &Option<Veth>)| match plain {
            Some(veth) => veth.counters().map_err(LabError::tried("reading what went over a link")),
            None => Ok(emulated.unwrap_or_default()),
        };
        both.map(read).collect()
    }

    /// CPU time of the emulator so far. The kernel hands a packet to the receiving host within the
    /// emulator's write, so that this includes that host's part of receiving it.
    pub fn emulator_cpu(&self) -> Duration {
        self.emulator.cpu()
    }

    /// True if a host's disk is only as fast as the scenario says.
    pub fn has_slow_disk(&self) -> bool {
        self.disks.iter().any(Disk::is_limited)
    }

    /// Applies the scenario's changes at their times from now on, until dropped, and lets others use its disks.
    pub fn start_changes(&self) -> LinkChanges {
        self.disks.iter().for_each(Disk::begin);
        LinkChanges::start(self.changes.clone(), Arc::clone(&self.emulator))
    }

    /// Runs `work` in a thread that is in a host: sockets made there are that host's.
    pub fn enter<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespaces[self.index(host)].enter(work)
    }

    fn index(&self, host: &str) -> usize {
        *self.hosts.get(host).unwrap_or_else(|| panic!("the scenario has no host `{host}`"))
    }
}

/// Checks that this process may make a lab.
pub fn check_rights() -> Result<(), LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop).map_err(LabError::NoTun)
}

fn make_hosts(
    registration: &Registration,
    scenario: &Scenario,
    case: &Case,
) -> Result<Vec<Namespace>, LabError> {
    let make = |host: &String| {
        let namespace = registration.namespace(host)?;
        for (key, value) in SETTINGS {
            namespace.sysctl(key, &Value::Integer(value))?;
        }
        for (key, value) in &case.host {
            namespace.sysctl(key, value)?;
        }
        Ok(namespace)
    };
    scenario.hosts.iter().map(make).collect()
}

fn make_links(
    scenario: &Scenario,
    case: &Case,
    namespaces: &[Namespace],
) -> Result<(Emulator, Vec<Option<Veth>>), LabError> {
    let mut emulator = Emulator::new().map_err(LabError::tried("starting the emulator"))?;
    let mut plain = Vec::new();
    for (index, link) in case.links.iter().enumerate() {
        let ends = link.between.map(|host| &namespaces[host]);
        if Veth::is_enough(scenario, index, link) {
            emulator.leave_out();
            plain.push(Some(Veth::add(ends, NetPlan::device(index))?));
            continue;
        }
        plain.push(None);
        let added = emulator.add(link, ends, &NetPlan::device(index));
        added.map_err(LabError::tried(format!("making the link `{}`", link.name)))?;
    }
    Ok((emulator, plain))
}

/// A table with what another says otherwise.
fn with(table: Value, other: Value) -> Value {
    match (table, other) {
        (Value::Table(mut table), Value::Table(other)) => {
            table.extend(other);
            table.into()
        }
        (_, other) => other,
    }
}

fn make_directories(
    files: &Path,
    scenario: &Scenario,
    case: &Case,
) -> Result<(Vec<PathBuf>, Vec<Disk>), LabError> {
    let mut disks = Vec::new();
    let mut directories = Vec::new();
    for host in &scenario.hosts {
        let directory = files.join(host);
        std::fs::create_dir(&directory).map_err(LabError::io("making", &directory))?;
        let tables = [scenario.disk.get(host), case.disk.get(host)].into_iter().flatten();
        if let Some(table) = tables.cloned().reduce(with) {
            disks.push(Disk::make(host, &table, &directory)?);
        }
        directories.push(directory);
    }
    Ok((directories, disks))
}
