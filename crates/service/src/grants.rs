//! Ticket secrets that this service honours: those of its leases, and those of what it shares at
//! the moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_protocol::Issuer;
use towpath_protocol::access::{GivenSecret, TicketEnd};
use towpath_protocol::service::{KnownWithdrawal, RelayedBinding};
use towpath_store::Leases;

use towpath_config::{Live, Switch};
use towpath_content::lock::lock;

use crate::fresh::now;
use crate::withdrawals::Withdrawals;
use towpath_limits::upload_budget::UploadBudget;

/// A root that is passed on.
#[derive(Default)]
struct GivenRoot {
    secrets: Vec<GivenSecret>,
    binding: Option<RelayedBinding>,
}

/// Answers the direct plugin's questions about rights.
pub struct Grants {
    identity: Identity,
    shared: RwLock<HashMap<Oid, BoundSecret>>,
    /// Roots that were got, or are on their way, by tickets of others, and that are passed on.
    given: RwLock<HashMap<Oid, GivenRoot>>,
    config: Live,
    /// Leases, if they are honoured: a daemon's are, a mere `tow share` gives
    /// out only what it shares.
    leases: Option<Arc<dyn Leases>>,
    withdrawals: Arc<Withdrawals>,
    /// Of what is passed on as the configuration says.
    upload: Mutex<UploadBudget>,
}

/// Why something is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassOn {
    /// A person asks for it.
    Asked,
    /// As long as the configuration says so.
    Configured,
}

impl Grants {
    /// Rights of a service.
    pub fn new(
        identity: Identity,
        leases: Option<Arc<dyn Leases>>,
        config: Live,
        withdrawals: Arc<Withdrawals>,
    ) -> Self {
        let (shared, given) = (RwLock::default(), RwLock::default());
        Self { identity, shared, given, config, leases, withdrawals, upload: Mutex::default() }
    }

    /// Honours tickets for `oid` with `secret` until the service ends.
    pub fn share(&self, oid: Oid, secret: BoundSecret) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).insert(oid, secret);
    }

    /// Honours them no longer, unless there is a lease.
    pub fn unshare(&self, oid: &Oid) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).remove(oid);
    }

    /// From now on what is here of `root` is passed on to whoever proves `secret`, by which it was got.
    pub(crate) fn pass_on(&self, root: Oid, secret: BoundSecret, why: PassOn) {
        let given = GivenSecret { secret, settings_allow: why == PassOn::Asked };
        let mut roots = self.given.write().unwrap_or_else(PoisonError::into_inner);
        roots.entry(root).or_default().secrets.push(given);
    }

    /// No longer for this once: whoever else said so, with this secret or another one, still passes it on.
    pub fn keep_back(&self, root: &Oid, secret: BoundSecret) {
        let mut roots = self.given.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = roots.get_mut(root) {
            let known = given.secrets.iter().position(|known| known.secret == secret);
            known.map(|at| given.secrets.swap_remove(at));
            if given.secrets.is_empty() {
                roots.remove(root);
            }
        }
    }

    /// True if what is here of `root` is passed on.
    pub fn passes_on(&self, root: &Oid) -> bool {
        self.given.read().unwrap_or_else(PoisonError::into_inner).contains_key(root)
    }

    /// Content that a live root is bound to, as its issuer signed.
    pub fn bind(&self, root: &Oid, binding: RelayedBinding) {
        if let Some(given) = self.given.write().unwrap_or_else(PoisonError::into_inner).get_mut(root) {
            given.binding = Some(binding);
        }
    }

    fn of_given<T>(&self, root: &Oid, read: impl FnOnce(&GivenRoot) -> T) -> Option<T> {
        self.given.read().unwrap_or_else(PoisonError::into_inner).get(root).map(read)
    }

    /// True if tickets of leases are honoured.
    pub fn honours_leases(&self) -> bool {
        self.leases.is_some()
    }
}

impl Issuer for Grants {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner).get(root).copied();
        shared.or_else(|| {
            let leases = self.leases.as_ref()?.leases().ok()?;
            leases.iter().find(|lease| lease.oid == *root).map(|lease| lease.secret)
        })
    }

    fn given(&self, root: &Oid) -> Vec<GivenSecret> {
        let is_configured = self.config.get().sharing.pass_on == Switch::On;
        let mut secrets = self.of_given(root, |given| given.secrets.clone()).unwrap_or_default();
        secrets.iter_mut().for_each(|given| given.settings_allow |= is_configured);
        secrets
    }

    fn pass_on(&self, bytes: u64) -> Result<(), Duration> {
        let rate = self.config.get().sharing.upload_rate.0;
        lock(&self.upload).take(bytes, rate, Instant::now())
    }

    fn over(&self, root: &Oid, secret: &BoundSecret) -> Option<TicketEnd> {
        match self.withdrawals.is_withdrawn(root, secret) {
            true => Some(TicketEnd::Withdrawn),
            false => secret.terms.is_expired(now()).then_some(TicketEnd::Expired),
        }
    }

    fn withdrawn(&self, root: &Oid) -> Vec<KnownWithdrawal> {
        self.withdrawals.of(root)
    }

    fn relayed(&self, root: &Oid) -> Option<RelayedBinding> {
        self.of_given(root, |given| given.binding.clone())?
    }

    fn is_allowed(&self, node: &NodeId, _oid: &Oid) -> bool {
        self.is_known(node)
    }

    fn is_known(&self, node: &NodeId) -> bool {
        // The node's own other processes may have everything.
        *node == self.identity.node_id() || self.config.get().general.allowed_nodes.contains(node)
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

#[cfg(test)]
mod tests {
    use towpath_config::Config;
    use towpath_content::ticket::Secret;

    use super::*;
    use crate::shares::Shares;

    #[test]
    fn a_root_is_passed_on_as_long_as_anybody_does() {
        let dir = tempfile::tempdir().unwrap();
        let withdrawals = Arc::new(Withdrawals::open(Arc::new(Shares::new(dir.path().to_path_buf()))));
        let config = Live::new(Config::default());
        let grants = Grants::new(Identity::generate().unwrap(), None, config, withdrawals);
        let (root, secret) = (Oid::of(b"root"), Secret([1; 16]).into());
        assert!(grants.given(&root).is_empty());
        grants.pass_on(root, secret, PassOn::Asked);
        grants.pass_on(root, secret, PassOn::Asked);
        grants.keep_back(&root, secret);
        assert_eq!(grants.given(&root).len(), 1);
        grants.keep_back(&root, Secret([2; 16]).into());
        assert!(grants.passes_on(&root), "another secret takes nothing away");
        grants.keep_back(&root, secret);
        assert!(!grants.passes_on(&root) && grants.given(&root).is_empty());
    }

    #[test]
    fn the_configuration_decides_at_each_request_whether_a_daemon_passes_on() {
        let dir = tempfile::tempdir().unwrap();
        let withdrawals = Arc::new(Withdrawals::open(Arc::new(Shares::new(dir.path().to_path_buf()))));
        let live = Live::new(Config::default());
        let grants = Grants::new(Identity::generate().unwrap(), None, live.clone(), withdrawals);
        let (root, secret) = (Oid::of(b"root"), Secret([1; 16]).into());
        grants.pass_on(root, secret, PassOn::Configured);
        let is_served = || grants.given(&root)[0].holding().serves();
        assert!(!is_served(), "off by default");
        let mut on = Config::default();
        on.sharing.pass_on = Switch::On;
        live.set(on);
        assert!(is_served());
        live.set(Config::default());
        assert!(!is_served());
    }
}
