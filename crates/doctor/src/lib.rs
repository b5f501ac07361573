//! What of Towpath works on this machine, and what to do about what does not: `tow doctor`.
//!
//! Probes look at the machine and at the servers that its configuration, or the person, names. They run side by side, and each has
//! a limit. What they find are facts; what these mean, and the advice, is decided by a function that asks nobody.
//!
//! | module | story |
//! |---|---|
//! | [`findings`] | the facts |
//! | [`advice`] | rows of a table from facts: pure |
//! | [`router`] | what kind of router is in between, from what servers see: pure |
//! | `machine` | addresses, ports, folders, the daemon, ssh and clock of this machine |
//! | `servers` | rendezvous servers and relays, asked |
//! | `multicast` | whether a code is found on this network |

pub mod advice;
pub mod findings;
mod machine;
mod multicast;
pub mod router;
mod servers;

use towpath_config::{Config, Home};
use towpath_content::hint::PeerAddress;

pub use advice::{CheckRow, CheckState, rows};
pub use findings::Findings;

/// Servers that a person names, besides those of the configuration.
#[derive(Debug, Clone, Default)]
pub struct NamedServers {
    /// Rendezvous servers.
    pub rendezvous: Vec<PeerAddress>,
    /// Relays.
    pub relays: Vec<PeerAddress>,
}

/// Looks at everything, within some seconds. No server is asked but those of `config` and `named`.
pub async fn examine(home: &Home, config: &Config, named: &NamedServers) -> Findings {
    let all = |configured: &[PeerAddress], named: &[PeerAddress]| {
        let mut all = configured.to_vec();
        all.extend(named.iter().filter(|place| !configured.contains(place)).cloned().collect::<Vec<_>>());
        all
    };
    let rendezvous = all(&config.rendezvous.servers, &named.rendezvous);
    let relays = all(&config.rendezvous.relays, &named.relays);
    let pass = servers::pass(config);
    let (rendezvous, relays, multicast, daemon) = tokio::join!(
        servers::ask_rendezvous(&rendezvous),
        servers::ask_relays(&relays, pass.as_ref().ok().and_then(Option::as_ref)),
        multicast::look(config.rendezvous.lan),
        machine::daemon(home),
    );
    let addresses = machine::addresses();
    let ports = machine::ports(config, &daemon);
    let (state, ssh, clock) = (machine::state(home), machine::ssh(), machine::clock());
    let pass = pass.err();
    Findings { addresses, ports, rendezvous, relays, pass, multicast, daemon, state, ssh, clock }
}
