//! Connections that are near go without pacing.
//!
//! BBR, where the system has chosen it, lets packets go by a timer, a few at a time. On a long way that
//! keeps queues short; within a room or a machine it costs a third of a transfer's processor time, and
//! half of its time. A socket that was paced once stays so, whatever algorithm it gets. So ours begin
//! without, and those whose handshake shows that the way is long get the system's choice back before they
//! send anything.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::kernel;

/// Nearer than this there is no queue that pacing could keep short.
const NEAR: Duration = Duration::from_millis(1);
/// Those to begin with, the better one first; the last is allowed everywhere.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Pacing that a socket began without, if the system's choice paces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pacing {
    systems: Option<String>,
}

impl Pacing {
    /// Has `socket`, which isn't connected yet, begin without pacing; so will those that it accepts.
    pub(super) fn postpone(socket: impl AsFd) -> Self {
        let socket = socket.as_fd();
        let systems = kernel::congestion_control(socket).filter(|name| name.starts_with(kernel::PACES));
        let set = |name| kernel::set_congestion_control(socket, name).is_ok();
        Self { systems: systems.filter(|_| UNPACED.into_iter().any(set)) }
    }

    /// Gives `socket`, whose handshake has just ended, the system's choice back unless its peer is near.
    pub(super) fn decide(&self, socket: impl AsFd) {
        let Some(name) = &self.systems else { return };
        let rtt = kernel::path_info(socket.as_fd()).map_or(Duration::ZERO, |path| path.min_rtt);
        if !is_near(rtt)
            && let Err(error) = kernel::set_congestion_control(socket.as_fd(), name)
        {
            tracing::debug!(%error, name, "the system's congestion control can't be chosen");
        }
    }
}

/// True if a way of this shortest round trip, zero if it is not known, is short.
fn is_near(rtt: Duration) -> bool {
    !rtt.is_zero() && rtt <= NEAR
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn algorithm(socket: impl AsFd) -> String {
        kernel::congestion_control(socket.as_fd()).unwrap()
    }

    #[test]
    fn what_is_not_known_is_not_near() {
        let near = [0, 1, 1000, 1001, 33_000].map(|us| is_near(Duration::from_micros(us)));
        assert_eq!(near, [false, true, true, false, false]);
    }

    #[test]
    fn where_the_system_paces_sockets_begin_without_and_stay_so_if_they_are_near() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let systems = algorithm(&listener);
        let pacing = Pacing::postpone(&listener);
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let begun = algorithm(&accepted);
        assert_eq!(pacing.systems.is_some(), systems.starts_with(kernel::PACES));
        assert!(!begun.starts_with(kernel::PACES), "{begun}");
        pacing.decide(&accepted);
        // A busy machine may be too slow to be near.
        assert!([begun, systems].contains(&algorithm(&accepted)));
    }

    #[test]
    fn a_long_way_gets_the_systems_choice_back() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        // Not connected, so nothing is known of the way.
        Pacing { systems: Some("reno".into()) }.decide(&socket);
        assert_eq!(algorithm(&socket), "reno");
        Pacing { systems: None }.decide(&socket);
        assert_eq!(algorithm(&socket), "reno");
    }
}
