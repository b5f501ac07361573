//! What tests of this crate need of a service.

use std::sync::Arc;

use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_protocol::{Issuer, Service};
use towpath_store::MemoryStore;

/// Gives nothing to anybody.
struct NobodysIssuer(Identity);

impl Issuer for NobodysIssuer {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        None
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message)
    }
}

/// A service that has nothing and gives it to nobody.
pub(crate) fn service(identity: &Identity) -> Arc<Service> {
    Arc::new(Service::new(Arc::new(MemoryStore::new()), Arc::new(NobodysIssuer(identity.clone()))))
}
