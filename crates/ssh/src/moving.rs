//! Addresses of this machine that change while a copy runs. The other side, which dials by named links, is told over what stands.

use std::net::SocketAddr;

use towpath_link::AddressNotices;

use crate::addresses::interfaces;
use crate::told_addresses::{SshConnection, addresses_to_send};

/// Addresses at which a listener of this machine can be reached.
#[derive(Debug, Clone)]
pub struct OwnAddresses {
    local: SocketAddr,
    ssh: Option<SshConnection>,
    known: Vec<SocketAddr>,
}

impl OwnAddresses {
    /// Those of a listener at `local`, as they are now.
    pub(crate) fn of(local: SocketAddr, ssh: Option<SshConnection>, known: Vec<SocketAddr>) -> Self {
        Self { local, ssh, known }
    }

    /// All of them, once any has changed.
    pub async fn changed(&mut self) -> Vec<SocketAddr> {
        let notices = AddressNotices::new();
        loop {
            let all = interfaces(self.local.is_ipv4());
            if let Some(changed) = self.look(addresses_to_send(self.local, all, self.ssh)) {
                return changed;
            }
            notices.next().await;
        }
    }

    fn look(&mut self, now: Vec<SocketAddr>) -> Option<Vec<SocketAddr>> {
        if now == self.known {
            return None;
        }
        self.known.clone_from(&now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once() {
        let at = |last| SocketAddr::from(([192, 0, 2, last], 7));
        let mut own = OwnAddresses::of(at(0), None, vec![at(1)]);
        assert_eq!(own.look(vec![at(1)]), None);
        assert_eq!(own.look(vec![at(1), at(2)]), Some(vec![at(1), at(2)]));
        assert_eq!(own.look(vec![at(1), at(2)]), None);
        assert_eq!(own.look(vec![at(2)]), Some(vec![at(2)]));
    }
}
