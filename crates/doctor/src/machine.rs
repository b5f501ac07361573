//! What the machine itself tells: its addresses and ports, the folder of state, the daemon, the ssh program and the clock.

use std::env;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use if_addrs::IfOperStatus::{Down, LowerLayerDown, NotPresent};
use if_addrs::{IfAddr, Interface};
use tokio::time::timeout;
use towpath_api::{Api, Client};
use towpath_config::{Config, Home};
use towpath_link::own_addresses::{OwnAddress, for_others, of_this_machine};

use crate::findings::{AddressFinding, ClockFinding, DaemonFinding, StateFinding};

/// Time for the daemon's answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Clocks are set a little now and then.
const SLACK: Duration = Duration::from_secs(24 * 60 * 60);

/// All addresses, also those of one link only.
pub(crate) fn addresses() -> Vec<AddressFinding> {
    let named = for_others(&of_this_machine(), false);
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let is_up = |interface: &Interface| !matches!(interface.oper_status, Down | NotPresent | LowerLayerDown);
    all.into_iter().filter(is_up).map(|interface| address(interface, &named)).collect()
}

fn address(interface: Interface, named: &[IpAddr]) -> AddressFinding {
    let prefix = match &interface.addr {
        IfAddr::V4(own) => own.prefixlen,
        IfAddr::V6(own) => own.prefixlen,
    };
    let ip = interface.ip();
    let own = OwnAddress { interface: interface.name, ip, prefix, is_passing: false };
    AddressFinding { kind: own.kind(), is_named: named.contains(&ip), interface: own.interface, ip }
}

/// Tries to listen where the configuration says, or anywhere. A daemon that runs has its ports already.
pub(crate) fn ports(config: &Config, daemon: &DaemonFinding) -> Vec<(SocketAddr, Result<(), String>)> {
    if matches!(daemon, DaemonFinding::Running { .. }) {
        return Vec::new();
    }
    let tried = |address: SocketAddr| {
        let bound = TcpListener::bind(address);
        (address, bound.map(drop).map_err(|error| error.to_string()))
    };
    if !config.general.listen.is_empty() {
        return config.general.listen.iter().copied().map(tried).collect();
    }
    let v6 = tried(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0));
    match v6.1 {
        Ok(()) => vec![v6],
        Err(_) => vec![tried(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))],
    }
}

/// Asks the daemon, if there is one.
pub(crate) async fn daemon(home: &Home) -> DaemonFinding {
    let socket = home.socket();
    let silent = |is_left, why: String| DaemonFinding::Silent { socket: socket.clone(), is_left, why };
    if let Err(error) = std::os::unix::net::UnixStream::connect(&socket) {
        return match error.kind() {
            ErrorKind::NotFound => DaemonFinding::Missing,
            ErrorKind::ConnectionRefused => silent(true, "it was left by one that was killed".into()),
            _ => silent(false, error.to_string()),
        };
    }
    let asked = async {
        let client = Client::connect(&socket).await.ok_or("it hung up")?;
        client.status().await.map_err(|error| error.message)
    };
    match timeout(ANSWER, asked).await {
        Ok(Ok(status)) => DaemonFinding::Running { version: status.version, listening: status.listening },
        Ok(Err(why)) => silent(false, why),
        Err(_) => silent(false, format!("no answer within {} s", ANSWER.as_secs())),
    }
}

/// Writes something where the state is, or will be, and takes it away again.
pub(crate) fn state(home: &Home) -> StateFinding {
    let folder = home.state().ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let trouble = tempfile::tempfile_in(folder).err().map(|error| error.to_string());
    let free = rustix::fs::statvfs(folder).ok().map(|there| there.f_bavail.saturating_mul(there.f_frsize));
    StateFinding { folder: folder.to_path_buf(), trouble, free }
}

/// The ssh program.
pub(crate) fn ssh() -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("ssh")).find(is_program)
}

/// Whether the clock is behind what this program's own file says.
pub(crate) fn clock() -> ClockFinding {
    let written = env::current_exe().and_then(|program| program.metadata()?.modified());
    match written.ok().and_then(|written| written.duration_since(SystemTime::now()).ok()) {
        Some(behind) if behind > SLACK => ClockFinding::BeforeProgram(behind),
        _ => ClockFinding::Plausible,
    }
}
