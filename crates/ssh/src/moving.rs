//! Addresses of this machine that change while a copy runs. The other side, which dials by named links, is told over what stands.

use std::net::SocketAddr;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use towpath_content::Hint;
use towpath_link::AddressNotices;
use towpath_plugins::direct::SCHEME;

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

/// Tells in `hints` where the other side is, as far as that has told by now, for who finds further ways to it. Ends when it is dropped.
pub fn lead_to(
    hints: watch::Sender<Vec<Hint>>,
    theirs: Option<watch::Receiver<Vec<SocketAddr>>>,
) -> AbortOnDropHandle<()> {
    let hint = |address: &SocketAddr| Hint::new(format!("{SCHEME}://{address}"), 0, 1).ok();
    AbortOnDropHandle::new(tokio::spawn(async move {
        if let Some(mut theirs) = theirs {
            loop {
                hints.send_replace(theirs.borrow_and_update().iter().filter_map(hint).collect());
                if theirs.changed().await.is_err() {
                    break;
                }
            }
        }
        // Whoever looks at them looks until the copy has ended.
        std::future::pending::<()>().await;
        drop(hints);
    }))
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
