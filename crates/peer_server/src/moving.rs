//! Addresses of this machine that come while it serves: whoever fetches is told, over what still stands.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_content::NodeId;
use towpath_link::AddressNotices;
use towpath_protocol::Service;

/// Tells whoever fetches from `service`, of the node `own`, of each address that `now` has and had not before. It listens from
/// this call on, not from when it is first polled.
pub(crate) fn tell_moves(
    own: NodeId,
    service: Arc<Service>,
    mut known: Vec<SocketAddr>,
    now: impl Fn() -> Vec<SocketAddr> + Send,
) -> impl Future<Output = Infallible> + Send {
    let notices = AddressNotices::new();
    async move {
        loop {
            let new = further(&mut known, now());
            if !new.is_empty() {
                tracing::debug!(?new, "further addresses of this machine");
                service.moved(own, &new);
            }
            notices.next().await;
        }
    }
}

/// Those that were not known. From now on these are, and no others: one that comes back is told again.
fn further(known: &mut Vec<SocketAddr>, now: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let before = std::mem::replace(known, now);
    known.iter().filter(|address| !before.contains(address)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_whenever_it_comes() {
        let at = |last| SocketAddr::from(([192, 0, 2, last], 7));
        let mut known = vec![at(1)];
        for (now, told) in [
            (vec![at(1)], vec![]),
            (vec![at(2), at(1)], vec![at(2)]),
            (vec![at(2)], vec![]),
            (vec![], vec![]),
            (vec![at(1), at(2)], vec![at(1), at(2)]),
        ] {
            assert_eq!(further(&mut known, now.clone()), told, "{now:?}");
        }
    }
}
